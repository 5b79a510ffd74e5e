#include "common/search/search.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/search/fast_evaluator.hpp"
#include "common/search/weighing.hpp"

namespace plumb {
namespace {

// Rounding of sums in another order.
constexpr double slightly = 1e-9;

// What an engine may predict below the longest path: nothing but rounding, unless messages are exchanged in batches.
// The path takes as long for each message of a batch as for all that share its port, which an engine need not (a few
// thousandths of a step, where messages are small beside compute).
constexpr double below_path_in_batches = 0.02;
double below_path(const Scenario& scenario) {
  return scenario.software.exchange == PipelineExchange::synchronous ? below_path_in_batches : slightly;
}

// Families weighed between two looks at the bound: few at first, since the best are soon found.
constexpr std::size_t first_round = 16;
constexpr std::size_t largest_round = 1024;

class Search {
 public:
  Search(const SearchSpace& space, const MakeWeigher& make_weigher, const Evaluator& engine,
         const SearchOptions& options)
      : space_(space), engine_(engine), options_(options), weighing_(space, make_weigher, options) {}

  SearchResult run() {
    weighing_.measure_bounds();
    do weigh_all_within_limit();
    while (predict_more());
    return result();
  }

 private:
  struct Prediction {
    std::int64_t id = 0;
    Candidate candidate = {};
  };

  // No candidate whose path is above it can stand in the table or be the best: engines predict no less than
  // 1 − below_path of it.
  [[nodiscard]] Seconds limit() const {
    if (!options_.bound || static_cast<int>(top_times_.size()) < options_.top) return longest_time;
    return predictions_.empty() ? top_times_.back() : std::max(top_times_.back(), lowest_path_of_better());
  }

  [[nodiscard]] Seconds lowest_path_of_better() const { return best_predicted_ / (1 - below_path(space_.scenario())); }

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

  void weigh_all_within_limit() {
    while (!weighing_.ended()) {
      std::vector<std::int64_t> round;
      std::vector<std::int64_t> later;
      for (const std::int64_t family : weighing_.waiting()) {
        (round.size() < round_size_ && needed(family) ? round : later).push_back(family);
      }
      if (round.empty()) return;
      round_size_ = std::min(2 * round_size_, largest_round);
      for (const WeighedCandidate& candidate : weighing_.weigh(round, std::move(later))) take(candidate);
    }
  }

  void take(const WeighedCandidate& candidate) {
    if (!candidate.fits) return;
    pending_.insert({candidate.iteration, candidate.peak_bytes, candidate.id});
    top_times_.insert(std::ranges::upper_bound(top_times_, candidate.iteration), candidate.iteration);
    if (static_cast<int>(top_times_.size()) > options_.top) top_times_.pop_back();
    weighing_.best = top_times_.front();
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
  [[nodiscard]] bool has_more_to_predict() const {
    if (pending_.empty()) return false;
    const Seconds next = std::get<0>(*pending_.begin()) * (1 - below_path(space_.scenario()));
    return static_cast<int>(predictions_.size()) < options_.top || next < best_predicted_;
  }

  // In the order of path times; false: nothing is left that could be better.
  bool predict_more() {
    bool any = false;
    while (has_more_to_predict()) {
      if (weighing_.ended() && !predictions_.empty()) return false;
      const std::int64_t id = std::get<2>(*pending_.begin());
      pending_.erase(pending_.begin());
      Candidate candidate = weigh_candidate(space_.scenario(), space_.choice(id), engine_);
      if (candidate.fits) best_predicted_ = std::min(best_predicted_, candidate.iteration);
      predictions_.push_back({id, std::move(candidate)});
      any = true;
    }
    return any;
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
    if (planning.candidates.empty() && !result.finished) {
      throw RunError("search", "was ended before it found a candidate that fits", "give it more time");
    }
    if (planning.candidates.empty()) {
      add_misfit(planning);
    } else {
      add_uniform(planning);
    }
    LeftOutLog log = weighing_.log();
    for (const std::int64_t family : weighing_.waiting()) {
      if (result.finished || !needed(family)) {
        log.too_slow(space_.layout_of(family), weighing_.time_bound(family), space_.splits());
      }
    }
    planning.bounded = log.candidates(LeftOutWhy::slower_by_bound);
    planning.pruned = log.candidates(LeftOutWhy::cannot_be_built) + log.candidates(LeftOutWhy::memory_bound);
    planning.evaluated = weighing_.evaluated();
    result.left = result.candidates - planning.pruned - planning.bounded - planning.evaluated;
    result.explanation = log.sorted();
    result.pareto = std::move(front_);
    return result;
  }

  // It was told to end when there was nothing left to do.
  [[nodiscard]] bool all_done() const {
    const bool weighed = weighing_.measured() &&
                         std::ranges::none_of(weighing_.waiting(), [&](std::int64_t family) { return needed(family); });
    return weighed && !has_more_to_predict();
  }

  void add_uniform(PlanningResult& planning) {
    PlanChoice choice = planning.candidates.front().choice;
    choice.split = {.method = SplitMethod::uniform};
    for (const Candidate& candidate : planning.candidates) {
      if (candidate.choice == choice) return;
    }
    Candidate uniform = weigh_candidate(space_.scenario(), choice, engine_);
    planning.simulated += uniform.built && uniform.engine != path_engine ? 1 : 0;
    planning.candidates.push_back(std::move(uniform));
    std::ranges::stable_sort(planning.candidates, stands_before);
  }

  // What is nearest to fitting, for its reason.
  void add_misfit(PlanningResult& planning) {
    const std::optional<std::int64_t> id = weighing_.smallest_misfit();
    if (id) planning.candidates.push_back(weigh_candidate(space_.scenario(), space_.choice(*id), engine_));
  }

  const SearchSpace& space_;
  const Evaluator& engine_;
  const SearchOptions& options_;
  Weighing weighing_;
  std::size_t round_size_ = first_round;
  std::vector<Seconds> top_times_;                              // of what fits, the least ones, ascending
  std::set<std::tuple<Seconds, Bytes, std::int64_t>> pending_;  // what fits and is not predicted yet
  std::vector<Prediction> predictions_;
  Seconds best_predicted_ = longest_time;
  std::vector<ParetoPoint> front_;
};

}  // namespace

Weigher slow_weigher(const Scenario& scenario) {
  return {.time_bound = [](const Family&) { return Seconds{}; },
          .memory_bound = [](const Family&) { return Bytes{}; },
          .weigh = [&scenario](const Family& family,
                               const SplitChoice& split) { return weigh_slowly(scenario, family, split); }};
}

Weigher fast_weigher(const Scenario& scenario) {
  const auto evaluator = std::make_shared<FastEvaluator>(scenario);
  return {
      .time_bound = [evaluator](const Family& family) { return evaluator->time_bound(family); },
      .memory_bound = [evaluator](const Family& family) { return evaluator->memory_bound(family); },
      .weigh = [evaluator](const Family& family, const SplitChoice& split) { return evaluator->weigh(family, split); }};
}

SearchResult search(const SearchSpace& space, const MakeWeigher& make_weigher, const Evaluator& engine,
                    const SearchOptions& options) {
  return Search(space, make_weigher, engine, options).run();
}

}  // namespace plumb
