#include "common/search/search.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/parallel.hpp"
#include "common/base/workers.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/predicted_answer.hpp"
#include "common/search/baseline.hpp"
#include "common/search/estimate.hpp"
#include "common/search/weighing.hpp"

namespace plumb {
namespace {

// Rounding of sums in another order.
constexpr double slightly = 1e-9;

// What an engine may predict below the longest path: nothing but rounding, unless messages are exchanged in batches.
// The path takes as long for each message of a batch as for all that share its port, which an engine need not (a few
// thousandths of a step, where messages are small beside compute).
constexpr double below_path_in_batches = 0.02;
// Where stages have different data degrees, the path takes every part of a message to be as late as the last one, on
// every boundary: what is late on one may be early on the next.
constexpr double below_path_of_stage_data = 0.05;
double below_path(const Scenario& scenario) {
  if (std::ranges::any_of(scenario.layouts, has_stage_data)) return below_path_of_stage_data;
  return scenario.software.exchange == PipelineExchange::synchronous ? below_path_in_batches : slightly;
}

// Families evaluated between two looks at the bound: few at first, since the best are soon found.
constexpr std::size_t first_round = 16;
constexpr int first_rounds = 8;
constexpr std::size_t largest_round = 1024;
// The longer each takes, the fewer at once: the better the best so far, the fewer are needed.
constexpr std::size_t round_of_several = 16;
constexpr std::size_t round_for_times = 8;

// Candidates predicted between two looks at the best one, behind those that the table has room for.
constexpr int predicted_at_once = 8;

class Search {
 public:
  Search(const SearchSpace& space, const MakeWeigher& make_weigher, const Evaluator& engine,
         const SearchOptions& options)
      : space_(space), engine_(engine), options_(options), weighing_(space, make_weigher, options) {}

  SearchResult run() {
    weigh_first();
    do {
      weighing_.measure_bounds();
      do weigh_all_within_limit();
      while (predict_more());
    } while (!weighing_.measured() && !weighing_.ended());
    if (predictions_.empty()) weighing_.weigh_nearest_excluded();
    refine_best();
    take_cuts_of_others();
    return result();
  }

 private:
  // What fits and is not predicted yet: its path time, bytes and number.
  using Pending = std::tuple<Seconds, Bytes, std::int64_t>;
  [[nodiscard]] static std::int64_t id_of(const Pending& pending) { return std::get<2>(pending); }

  struct Prediction {
    std::int64_t id = 0;
    Candidate candidate = {};
  };

  // No candidate whose path is above it can stand in the table or be the best: engines predict no less than
  // 1 − below_path of it.
  [[nodiscard]] Seconds limit() const {
    if (!options_.bound || static_cast<int>(top_times_.size()) < options_.top) return longest_time;
    return predictions_.empty() ? top_times_.back() : std::max(top_times_.back(), longest_path_of_better());
  }

  [[nodiscard]] Seconds longest_path_of_better() const { return best_predicted_ / (1 - below_path(space_.scenario())); }

  [[nodiscard]] bool dominated(std::int64_t family) const {
    return std::ranges::any_of(front_, [&](const ParetoPoint& point) {
      return point.iteration < weighing_.time_bound(family) * (1 - slightly) &&
             point.peak_bytes <= weighing_.memory_bound(family);
    });
  }

  [[nodiscard]] bool needed(std::int64_t family) const {
    if (weighing_.time_bound(family) <= limit() * (1 + slightly)) return true;
    return options_.pareto && !dominated(family);
  }

  [[nodiscard]] std::size_t most_at_once(Turn turn) const {
    if (turn == Turn::for_times) return round_for_times;
    return turn == Turn::several ? std::min(round_size_, round_of_several) : round_size_;
  }

  // Families that wait: those of the next round, and the others.
  struct Round {
    std::vector<std::int64_t> now = {};
    std::vector<std::int64_t> later = {};
  };
  // `belongs` is asked for each in turn, with those that are in the round already.
  template <class Belongs>
  [[nodiscard]] Round next_round(const Belongs& belongs) const {
    Round round;
    for (const std::int64_t family : weighing_.waiting()) {
      (belongs(family, round.now) ? round.now : round.later).push_back(family);
    }
    return round;
  }

  // Looks for one plan that fits before all bounds are measured, which may take a second: for whoever ends the search
  // early.
  void weigh_first() {
    weighing_.measure_first_bounds();
    for (int round_number = 0; round_number < first_rounds && pending_.empty(); ++round_number) {
      Round round = next_round([this](std::int64_t family, const std::vector<std::int64_t>& now) {
        return now.size() < first_round && weighing_.turn(family) == Turn::likely;
      });
      if (round.now.empty() || weighing_.ended()) return;
      for (const WeighedCandidate& candidate : weighing_.weigh(round.now, std::move(round.later))) take(candidate);
    }
  }

  void weigh_all_within_limit() {
    while (!weighing_.ended()) {
      Round round = next_round([this](std::int64_t family, const std::vector<std::int64_t>& now) {
        const bool same_turn = now.empty() || weighing_.turn(family) == weighing_.turn(now.front());
        return same_turn && now.size() < most_at_once(weighing_.turn(family)) && needed(family);
      });
      if (round.now.empty()) return;
      round_size_ = std::min(2 * round_size_, largest_round);
      weighing_.count_beyond(round.later, [this](std::int64_t family) { return needed(family); });
      if (!options_.pareto && limit() < longest_time) weighing_.at_most = limit() * (1 + slightly);
      for (const WeighedCandidate& candidate : weighing_.weigh(round.now, std::move(round.later))) take(candidate);
    }
  }

  void take(const WeighedCandidate& candidate) {
    if (!candidate.fits) return;
    const std::tuple key(candidate.iteration, candidate.peak_bytes, candidate.id);
    if (pending_.empty() || key < *pending_.begin()) first_pending_ = candidate;
    pending_.insert(key);
    splits_.emplace(candidate.id, candidate.split);
    top_times_.insert(std::ranges::upper_bound(top_times_, candidate.iteration), candidate.iteration);
    if (static_cast<int>(top_times_.size()) > options_.top) top_times_.pop_back();
    if (best_predicted_ == longest_time) weighing_.best = top_times_.front();
    if (options_.pareto) add_to_front({candidate.id, candidate.iteration, candidate.peak_bytes});
  }

  void add_to_front(const ParetoPoint& point) {
    const auto key = [](const ParetoPoint& p) { return std::tuple(p.iteration, p.peak_bytes, p.candidate); };
    const auto covers = [&](const ParetoPoint& a, const ParetoPoint& b) {
      return a.iteration <= b.iteration && a.peak_bytes <= b.peak_bytes && key(a) < key(b);
    };
    if (std::ranges::any_of(front_, [&](const ParetoPoint& other) { return covers(other, point); })) return;
    std::erase_if(front_, [&](const ParetoPoint& other) { return covers(point, other); });
    front_.insert(std::ranges::upper_bound(front_, key(point), {}, key), point);
  }

  // The next by path time belongs into the table, or may be faster under the engine than the best that it predicted.
  // `taken` are under way.
  [[nodiscard]] bool has_more_to_predict(int taken = 0) const {
    if (pending_.empty()) return false;
    const Seconds next = std::get<0>(*pending_.begin()) * (1 - below_path(space_.scenario()));
    return static_cast<int>(predictions_.size()) + taken < options_.top || next < best_predicted_;
  }

  // Of those that wait.
  [[nodiscard]] std::int64_t to_predict() const {
    const Seconds below = std::min(longest_path_of_better(), longest_time);
    const auto lacking = options_.top - std::ssize(predictions_);
    const auto faster = std::distance(pending_.begin(), pending_.lower_bound({below, Bytes{}, 0}));
    return std::max<std::int64_t>(faster, std::clamp<std::int64_t>(lacking, 0, std::ssize(pending_)));
  }

  // The next by path time, as many as the table lacks, or a few that may be faster than the best.
  std::vector<Pending> take_round() {
    const auto lacking = std::max(options_.top - static_cast<int>(predictions_.size()), 0);
    const auto most = static_cast<std::size_t>(std::max(lacking, predicted_at_once));
    std::vector<Pending> round;
    while (round.size() < most && has_more_to_predict(static_cast<int>(round.size()))) {
      round.push_back(*pending_.begin());
      pending_.erase(pending_.begin());
    }
    return round;
  }

  // In the order of path times, round by round; false: nothing is left that could be better.
  bool predict_more() {
    bool any = false;
    while (has_more_to_predict()) {
      if (weighing_.ended() && !predictions_.empty()) return false;
      weighing_.tell_predicted(std::ssize(predictions_), to_predict());
      predict(take_round());
      any = true;
    }
    return any;
  }

  // Plans are made by threads and predicted by processes. Told to end, it predicts one alone, if none was yet.
  void predict(const std::vector<Pending>& round) {
    std::vector<Candidate> candidates(round.size());
    in_parallel(options_.jobs, std::ssize(round), 1, [&](int thread, std::int64_t item) {
      if (weighing_.ended()) return;
      try {
        const StopOnThread watch(&weighing_.stop(thread));
        const auto n = static_cast<std::size_t>(item);
        candidates[n] = built(id_of(round[n]), effort(thread));
      } catch (const Stopped&) {  // then the search has ended, and what is not predicted waits
      }
    });
    const std::vector<std::size_t> first_alike = first_with_same_plan(candidates);
    const auto answers = in_workers(
        {.processes = options_.processes, .stop = &weighing_.stop(0)}, round.size(),
        [&](std::size_t n) { return first_alike[n] == n ? predicted_answer(candidates[n], engine_) : std::string(); });
    for (std::size_t n = 0; n < round.size(); ++n) {
      const std::optional<std::string>& answer = answers[first_alike[n]];
      if (!answer) {
        pending_.insert(round[n]);
        continue;
      }
      take_answer(candidates[n], *answer);
      take_prediction(id_of(round[n]), std::move(candidates[n]));
    }
    if (!predictions_.empty()) return;
    pending_.erase(round.front());
    const std::int64_t first = id_of(round.front());
    take_prediction(first, first == first_pending_.id
                               ? predict_as_weighed(first_pending_, within_grace(engine_))
                               : weigh_candidate(space_.scenario(), space_.choice(first), within_grace(engine_)));
  }

  // With the split that it was weighed with: to find a dynamic one again takes longer than all else of its plan. A
  // schedule that is made for times is made for the split that goes with it.
  [[nodiscard]] Candidate built(std::int64_t id, const PlanEffort& effort) const {
    const PlanChoice choice = space_.choice(id);
    if (is_made_for_times(choice.schedule)) return build_candidate(space_.scenario(), choice, effort);
    return build_as_weighed(space_.scenario(), choice, splits_.at(id), effort);
  }

  void take_prediction(std::int64_t id, Candidate candidate) {
    if (candidate.fits) best_predicted_ = std::min(best_predicted_, candidate.iteration);
    if (best_predicted_ < longest_time) weighing_.best = best_predicted_;
    predictions_.push_back({id, std::move(candidate)});
  }

  // As candidates are weighed.
  [[nodiscard]] PlanEffort effort(int thread) const { return {.thorough = false, .stop = &weighing_.stop(thread)}; }

  [[nodiscard]] Prediction& best_prediction() {
    return *std::ranges::min_element(
        predictions_, [](const Prediction& a, const Prediction& b) { return stands_before(a.candidate, b.candidate); });
  }

  // The best one's dynamic split once more, thoroughly. A schedule that is made for times is not made again for that.
  void refine_best() {
    if (predictions_.empty() || weighing_.ended()) return;
    Prediction& best = best_prediction();
    const PlanChoice& choice = best.candidate.choice;
    const bool dynamic = choice.split.method == SplitMethod::dynamic;
    if (!best.candidate.fits || !dynamic || is_made_for_times(choice.schedule)) return;
    try {
      const std::optional<Split> split = weighing_.refined(best.id / space_.splits());
      if (!split || *split == best.candidate.plan.split) return;
      Candidate refined = predict_as_weighed({.id = best.id, .split = *split}, engine_);
      if (stands_before(refined, best.candidate)) best.candidate = std::move(refined);
    } catch (const Stopped&) {  // then it stays as it is
    }
  }

  // Predicts the cuts of planners that choose replicas too, if stages have different data degrees: for the best one's
  // layout one of them may be faster by the engine than the cut that the longest path prefers.
  void take_cuts_of_others() {
    if (predictions_.empty() || weighing_.ended() || !space_.scenario().stage_data_pipelines) return;
    Prediction& best = best_prediction();
    const PlanChoice& choice = best.candidate.choice;
    if (!best.candidate.fits || choice.split.method != SplitMethod::dynamic) return;
    for (const Baseline& baseline : baselines()) {
      if (!baseline.replicas || weighing_.ended()) continue;
      Candidate other = weigh_baseline(space_.scenario(), best.candidate, baseline, engine_);
      if (!other.fits) continue;
      PlanChoice same = other.choice;
      same.split = choice.split;
      if (!(same == choice) || !stands_before(other, best.candidate)) continue;
      other.choice = choice;
      other.own = true;
      other.plan.split_method = name_of(choice.split.method);
      best.candidate = std::move(other);
    }
  }

  // With the split that was found: to find it again may take seconds.
  [[nodiscard]] Candidate predict_as_weighed(const WeighedCandidate& weighed, const Evaluator& engine) const {
    const PlanChoice choice = space_.choice(weighed.id);
    if (weighed.plan) {
      Candidate candidate{.choice = choice, .built = true, .plan = *weighed.plan};
      candidate.plan.cluster = space_.scenario().cluster;
      add_prediction(candidate, candidate_prediction(engine(candidate.plan)));
      return candidate;
    }
    return predicted(build_as_weighed(space_.scenario(), choice, weighed.split), engine);
  }

  SearchResult result() {
    SearchResult result{.candidates = space_.candidates(), .finished = !weighing_.ended() || all_done()};
    PlanningResult& planning = result.planning;
    for (const Prediction& prediction : predictions_) {
      planning.simulated += prediction.candidate.engine == path_engine ? 0 : 1;
    }
    std::ranges::sort(predictions_, [](const Prediction& a, const Prediction& b) {
      if (stands_before(a.candidate, b.candidate)) return true;
      return !stands_before(b.candidate, a.candidate) && a.id < b.id;
    });
    if (static_cast<int>(predictions_.size()) > options_.top) {
      predictions_.resize(static_cast<std::size_t>(options_.top));
    }
    for (Prediction& prediction : predictions_) planning.candidates.push_back(std::move(prediction.candidate));
    if (planning.candidates.empty() && !result.finished) throw_ended_early();
    if (planning.candidates.empty()) {
      add_shortfall(planning);
    } else {
      add_plain(planning);
      add_uniform(planning);
    }
    LeftOutLog log = weighing_.log();
    for (const std::int64_t family : weighing_.waiting()) {
      if (result.finished || !needed(family)) {
        log.too_slow(space_.layout_of(family), weighing_.time_bound(family), weighing_.candidates(family));
      }
    }
    planning.bounded = log.candidates(LeftOutWhy::slower_by_bound);
    planning.pruned = log.candidates(LeftOutWhy::cannot_be_built) + log.candidates(LeftOutWhy::memory_bound);
    planning.unproven = log.candidates(LeftOutWhy::unproven);
    planning.evaluated = weighing_.evaluated();
    planning.left = result.candidates - planning.pruned - planning.bounded - planning.unproven - planning.evaluated;
    if (!result.finished) result.not_predicted = to_predict();
    result.explanation = log.sorted();
    result.pareto = std::move(front_);
    return result;
  }

  // It was told to end when there was nothing left to do.
  [[nodiscard]] bool all_done() const {
    const bool weighed = weighing_.measured() && !weighing_.cut_short() &&
                         std::ranges::none_of(weighing_.waiting(), [&](std::int64_t family) { return needed(family); });
    return weighed && !has_more_to_predict();
  }

  // Of the best plan's layout. Where its stages have different data degrees, equal numbers of layers on unequal ones
  // are nobody's uniform: that of the fastest layout without is.
  void add_uniform(PlanningResult& planning) {
    const bool by_stage = has_stage_data(planning.candidates.front().plan.layout);
    const auto plain = std::ranges::find_if(planning.candidates, is_plain);
    const auto best = by_stage && plain != planning.candidates.end() ? plain : planning.candidates.begin();
    const std::optional<PlanChoice> choice = missing_uniform(planning.candidates, best->choice);
    if (!choice || (weighing_.ended() && is_made_for_times(choice->schedule))) return;  // seconds beyond the time limit
    const Evaluator engine = weighing_.ended() ? within_grace(engine_) : engine_;
    add_in_order(planning, weigh_candidate(space_.scenario(), *choice, engine));
  }

  static void add_in_order(PlanningResult& planning, Candidate candidate) {
    planning.simulated += candidate.built && candidate.engine != path_engine ? 1 : 0;
    planning.candidates.push_back(std::move(candidate));
    std::ranges::stable_sort(planning.candidates, stands_before);
  }

  static bool is_plain(const Candidate& candidate) { return candidate.built && !has_stage_data(candidate.plan.layout); }

  // Beside stages of different data degrees the fastest layout without: of what is not weighed that with the least
  // bound.
  void add_plain(PlanningResult& planning) {
    if (!has_stage_data(planning.candidates.front().plan.layout)) return;
    if (std::ranges::any_of(planning.candidates, is_plain)) return;
    std::vector<std::int64_t> ids;
    for (const auto& [time, bytes, id] : pending_) ids.push_back(id);
    for (const std::int64_t family : weighing_.waiting()) ids.push_back(family * space_.splits());
    for (const std::int64_t id : ids) {
      if (has_stage_data(space_.layout_of(id / space_.splits()))) continue;
      Candidate plain = weigh_candidate(space_.scenario(), space_.choice(id), engine_);
      if (plain.built) return add_in_order(planning, std::move(plain));
    }
  }

  // What is nearest to fitting, for its reason and hint. A search that ended with all done still says one.
  void add_shortfall(PlanningResult& planning) {
    const Stop* stop = weighing_.ended() ? nullptr : &weighing_.stop(0);
    for (const std::int64_t id : weighing_.smallest_shortfall()) {
      if (weighing_.ended() && !planning.candidates.empty()) return;
      try {
        planning.candidates.push_back(weigh_candidate(space_.scenario(), space_.choice(id), engine_, {.stop = stop}));
      } catch (const Stopped&) {
        if (planning.candidates.empty()) throw_ended_early();
        return;
      }
    }
  }

  const SearchSpace& space_;
  const Evaluator& engine_;
  const SearchOptions& options_;
  Weighing weighing_;
  std::size_t round_size_ = first_round;
  std::vector<Seconds> top_times_;  // of what fits, the least ones, ascending
  std::set<Pending> pending_;
  std::map<std::int64_t, Split> splits_;  // by candidate, of all that fit
  WeighedCandidate first_pending_;        // the least of them, when it came
  std::vector<Prediction> predictions_;
  Seconds best_predicted_ = longest_time;
  std::vector<ParetoPoint> front_;
};

}  // namespace

SearchResult search(const SearchSpace& space, const MakeWeigher& make_weigher, const Evaluator& engine,
                    const SearchOptions& options) {
  return Search(space, make_weigher, engine, options).run();
}

}  // namespace plumb
