// To end earlier, a schedule must change where its longest chain of actions runs along one rank: only there does order,
// and not the pipeline, make an action wait (the critical blocks of job shops: Van Laarhoven, Aarts and Lenstra,
// Operations Research 40(1), 1992). Moves: two neighbours change places, or one goes to the block's beginning or end.
#include "common/schedule/zb_auto/anneal.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/schedule/zb_auto/random.hpp"

namespace plumb::zb_auto {
namespace {

// A piece of the critical path: places [begin, end) of a rank's list, without a gap in time.
struct CriticalBlock {
  std::size_t rank;
  std::size_t begin;
  std::size_t end;
};

class PathWalker {
 public:
  PathWalker(const Model& model, const StepLists& lists, const Times& times)
      : model_(model), lists_(lists), times_(times), rounding_(1e-12 * times.score.makespan) {}

  // From the end of the step back to its start, blocks of two or more.
  void blocks(std::vector<CriticalBlock>& blocks) const {
    blocks.clear();
    const auto last = std::ranges::max_element(times_.end);
    auto rank = static_cast<std::size_t>(last - times_.end.begin());
    std::size_t place = lists_[rank].size() - 1;
    std::size_t microbatch = model_.microbatches - 1;  // every list ends with the last W of a stage
    while (true) {
      const std::size_t end = place + 1;
      // Back along the rank while each action starts when the one before it ends.
      std::size_t first = 0;
      while (true) {
        first = model_.action(lists_[rank][place], microbatch);
        if (place == 0 || times_.start[first] <= rounding_) break;
        const Step previous = lists_[rank][place - 1];
        const std::size_t k = microbatch_at(rank, place - 1);
        const double previous_end = times_.start[model_.action(previous, k)] + model_.seconds[previous];
        if (previous_end < times_.start[first] - rounding_) break;
        microbatch = k;
        --place;
      }
      if (end - place > 1) blocks.push_back({rank, place, end});
      const Step before = model_.before[lists_[rank][place]];
      if (times_.start[first] <= rounding_ || before == no_step) return;
      rank = model_.rank_of(before);
      place = times_.place[model_.action(before, microbatch)];
    }
  }

 private:
  // The microbatch of a step whose place is known: places grow with it.
  [[nodiscard]] std::size_t microbatch_at(std::size_t rank, std::size_t place) const {
    const std::uint32_t* first = &times_.place[model_.action(lists_[rank][place], 0)];
    return static_cast<std::size_t>(std::lower_bound(first, first + model_.microbatches, place) - first);
  }

  const Model& model_;
  const StepLists& lists_;
  const Times& times_;
  double rounding_;
};

struct Move {
  std::size_t from;
  std::size_t to;
};

void apply(std::vector<Step>& list, const Move& move) {
  const auto at = [&](std::size_t place) { return list.begin() + static_cast<std::ptrdiff_t>(place); };
  if (move.from < move.to) {
    std::rotate(at(move.from), at(move.from + 1), at(move.to + 1));
  } else {
    std::rotate(at(move.to), at(move.from), at(move.from + 1));
  }
}

// Where the list keeps more than the limit, the next W that could stand before that place goes there, as often as need
// be. False if there is none.
bool make_room(const Model& model, std::size_t rank, std::vector<Step>& list, std::vector<std::uint32_t>& done) {
  for (const std::size_t s : model.stages_of_rank[rank]) {
    std::fill_n(done.begin() + static_cast<std::ptrdiff_t>(3 * s), 3, 0U);
  }
  std::int64_t kept = 0;
  for (std::size_t at = 0; at < list.size(); ++at) {
    while (kept + model.change[list[at]] > model.limit[rank]) {
      std::size_t weight = at + 1;
      for (; weight < list.size(); ++weight) {
        const Step step = list[weight];
        if (part_of(step) == Part::weight_gradient && model.change[step] < 0 && done[step] < done[step - 1]) break;
      }
      if (weight == list.size()) return false;
      apply(list, {weight, at});
      kept += model.change[list[at]];
      ++done[list[at]];
      ++at;
    }
    kept += model.change[list[at]];
    ++done[list[at]];
  }
  return true;
}

Move random_move(const CriticalBlock& block, Random& random) {
  const std::size_t size = block.end - block.begin;
  switch (random.below(3)) {
    case 0: {
      const std::size_t from = block.begin + random.below(size - 1);
      return {from, from + 1};
    }
    case 1:
      return {block.begin + 1 + random.below(size - 1), block.begin};
    default:
      return {block.begin + random.below(size - 1), block.end - 1};
  }
}

double mean_seconds(const Model& model) {
  return std::accumulate(model.seconds.begin(), model.seconds.end(), 0.0) / static_cast<double>(model.steps());
}

}  // namespace

StepLists anneal(const Model& model, StepLists lists, double target, const Annealing& annealing) {
  Clock clock(model);
  Random random(annealing.seed);
  Score current = clock.run(lists).score;
  Score best = current;
  StepLists best_lists = lists;
  const double temperature = annealing.heat * mean_seconds(model);
  const std::size_t evaluations = annealing.evaluations;
  std::vector<CriticalBlock> blocks;
  PathWalker(model, lists, clock.times()).blocks(blocks);
  const std::size_t tries = 8 * evaluations;  // most break a limit, which costs little to see
  std::size_t evaluated = 0;
  std::vector<Step> before;
  std::vector<std::uint32_t> done(model.steps());
  for (std::size_t t = 0; t < tries && evaluated < evaluations && !blocks.empty(); ++t) {
    if (reaches(best, target)) break;
    const CriticalBlock& block = blocks[random.below(blocks.size())];
    const Move move = random_move(block, random);
    const std::size_t rank = block.rank;
    std::vector<Step>& list = lists[rank];
    if (list[move.from] == list[move.to] && move.from + 1 == move.to) continue;
    before = list;
    apply(list, move);
    bool taken = make_room(model, rank, list, done);
    if (taken) {
      ++evaluated;
      const Score score = clock.run(lists).score;
      const double left = 1 - static_cast<double>(evaluated) / static_cast<double>(evaluations + 1);
      taken = score.makespan < never &&
              (score.makespan <= current.makespan ||
               random.unit() < std::exp((current.makespan - score.makespan) / (temperature * left)));
      if (taken) current = score;
    }
    if (!taken) {
      std::swap(list, before);
      continue;
    }
    if (better(current, best)) {
      best = current;
      best_lists = lists;
    }
    PathWalker(model, lists, clock.times()).blocks(blocks);
  }
  return best_lists;
}

}  // namespace plumb::zb_auto
