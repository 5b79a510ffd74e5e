#include "common/schedule/zb_auto/search.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "common/schedule/zb_auto/anneal.hpp"
#include "common/schedule/zb_auto/block.hpp"
#include "common/schedule/zb_auto/greedy.hpp"
#include "common/schedule/zb_auto/lighten.hpp"
#include "common/schedule/zb_auto/seeds.hpp"

namespace plumb::zb_auto {
namespace {

// How much is tried: less of what takes longer, so that 16 stages and 64 microbatches take a third of a second.
struct Effort {
  std::size_t policies;
  std::size_t blocks;
  std::size_t patiences;
  std::size_t evaluations;
  std::size_t levels;

  explicit Effort(std::size_t actions)
      : policies(std::clamp<std::size_t>(4'000'000 / actions, 2, 126)),
        blocks(std::clamp<std::size_t>(400'000 / actions, 1, 9)),
        patiences(std::clamp<std::size_t>(400'000 / actions, 1, 3)),
        evaluations(std::clamp<std::size_t>(60'000'000 / actions, 10, 20'000)),
        levels(std::clamp<std::size_t>(2'000'000 / actions, 10, 2'000)) {}
};

constexpr double patiences[] = {0, 0.5, 1};  // the most useful first, here and below
constexpr double stretches[] = {1.05, 1.15, 1, 1.3, 1.1, 1.02, 1.2, 1.4, 1.6};
constexpr double in_flight_factors[] = {1, 1.5, 0.7, 2, 1.2, 0.85};
constexpr int block_rounds = 500;
constexpr int rounds_of_halves = 5;
constexpr double heats[] = {1, 0.5, 2, 0.3, 1, 0.2};  // by turns, freely and less so

// The best few of all that are offered, no two equally good.
class Pool {
 public:
  explicit Pool(const Model& model) : model_(model), clock_(model) {}

  void offer(StepLists lists) {
    if (lists.empty()) return;
    const std::int64_t memory = fullest(model_, lists);
    if (memory > 0) return;
    Score score = clock_.run(lists).score;
    if (score.makespan == never) return;
    score.fullest = memory;
    std::size_t place = best_.size();
    while (place > 0 && better(score, best_[place - 1].score)) --place;
    if (place > 0 && !better(best_[place - 1].score, score)) return;
    if (place >= size) return;
    best_.insert(best_.begin() + static_cast<std::ptrdiff_t>(place), {score, std::move(lists)});
    if (best_.size() > size) best_.pop_back();
  }

  [[nodiscard]] const std::vector<Candidate>& best() const { return best_; }
  [[nodiscard]] bool reaches(double makespan) const {
    return !best_.empty() && zb_auto::reaches(best_.front().score, makespan);
  }

 private:
  static constexpr std::size_t size = 2;
  const Model& model_;
  Clock clock_;
  std::vector<Candidate> best_;
};

// How long the busiest rank works on a microbatch.
double busiest(const Model& model) {
  double most = 0;
  for (const auto& stages : model.stages_of_rank) {
    double work = 0;
    for (const std::size_t s : stages) {
      for (Step step = step_of(s, Part::forward); step < step_of(s + 1, Part::forward); ++step)
        work += model.seconds[step];
    }
    most = std::max(most, work);
  }
  return most;
}

// Numbers of chunks in flight per rank: as many as fit, and multiples of what keeps the busiest rank busy, which is the
// time from F to I of a rank's microbatch over that rank's time for one.
std::vector<std::vector<int>> numbers_in_flight(const Model& model) {
  std::vector<double> away(model.stages);
  double chain = 0;
  for (std::size_t s = model.stages; s-- > 0;) {
    chain += model.seconds[step_of(s, Part::forward)] + model.seconds[step_of(s, Part::input_gradient)];
    away[s] = chain;
    if (s > 0) chain += 2 * model.lag[step_of(s, Part::forward)];
  }
  const double period = busiest(model);
  std::vector<std::vector<int>> all{{}};
  for (const double factor : in_flight_factors) {
    std::vector<int> numbers;
    for (const auto& stages : model.stages_of_rank) {
      double need = 0;
      for (const std::size_t s : stages) need += away[s] / period;
      numbers.push_back(static_cast<int>(std::ceil(std::min(factor * need, 1e6))));
    }
    all.push_back(std::move(numbers));
  }
  return all;
}

// The lists themselves, and their F and I with W placed anew.
void offer_with_weights(const Model& model, const Effort& effort, StepLists lists, Pool& pool) {
  for (const double patience : std::span(patiences).first(effort.patiences)) {
    pool.offer(list_schedule(model, {.patience = patience, .in_flight = {}, .order = &lists}));
  }
  pool.offer(std::move(lists));
}

// So many, or until one reaches `target`.
void offer_policies(const Model& model, std::size_t left, double target, Pool& pool) {
  const std::vector<std::vector<int>> numbers = numbers_in_flight(model);
  for (const double patience : patiences) {
    for (const bool room_first : {false, true}) {
      for (const auto& in_flight : numbers) {
        for (const auto prefer : {Policy::Prefer::backward, Policy::Prefer::forward, Policy::Prefer::alternate}) {
          if (left-- == 0 || pool.reaches(target)) return;
          pool.offer(list_schedule(
              model, {.prefer = prefer, .room_first = room_first, .patience = patience, .in_flight = in_flight}));
        }
      }
    }
  }
}

void offer_blocks(const Model& model, const Effort& effort, Pool& pool) {
  const double period = busiest(model);
  if (period <= 0) return;
  for (const double stretch : std::span(stretches).first(effort.blocks)) {
    const PeriodicBlock block = find_block(model, stretch * period, block_rounds);
    offer_with_weights(model, effort, unrolled(model, block), pool);
  }
}

// From the second best, then again and again from the best.
void improve(const Model& model, const Effort& effort, double target, Pool& pool) {
  const std::size_t share = std::max<std::size_t>(1, effort.evaluations / std::size(heats));
  std::uint64_t round = 0;
  for (const double heat : heats) {
    const std::vector<Candidate>& best = pool.best();
    if (pool.reaches(target)) return;
    const StepLists& start = round++ == 0 ? best.back().lists : best.front().lists;
    pool.offer(anneal(model, start, target, {.evaluations = share, .heat = heat, .seed = round}));
  }
}

// As early with limits as low as a few searches by halves find.
Candidate with_less_memory(const Model& model, const Effort& effort, const std::vector<StepLists>& seeds,
                           Candidate best) {
  const double makespan = best.score.makespan;
  std::int64_t too_low = fullest(model, one_at_a_time(model)) - 1;
  Model tight = model;
  for (int round = 0; round < rounds_of_halves && best.score.fullest - too_low > 1; ++round) {
    const std::int64_t lower = too_low + (best.score.fullest - too_low) / 2;
    for (std::size_t r = 0; r < model.ranks; ++r) tight.limit[r] = model.limit[r] + lower;
    Pool pool(tight);
    for (const StepLists& seed : seeds) offer_with_weights(tight, effort, seed, pool);
    offer_policies(tight, effort.policies / 4, makespan, pool);
    Score found = pool.best().empty() ? Score{} : pool.best().front().score;
    found.fullest = best.score.fullest;
    if (better(best.score, found)) {
      too_low = lower;
      continue;
    }
    best = pool.best().front();
    best.score.fullest += lower;
  }
  return lightened(model, std::move(best), effort.levels);
}

}  // namespace

Candidate best_lists(const Model& model) {
  const Effort effort(model.actions());
  Pool pool(model);
  pool.offer(one_at_a_time(model));
  const std::vector<StepLists> seeds = fixed_schedules(model);
  for (const StepLists& lists : seeds) offer_with_weights(model, effort, lists, pool);
  const double target = bound(model);
  offer_policies(model, effort.policies, target, pool);
  if (!pool.reaches(target)) offer_blocks(model, effort, pool);
  improve(model, effort, target, pool);
  return with_less_memory(model, effort, seeds, pool.best().front());
}

}  // namespace plumb::zb_auto
