// The search over all that a scenario leaves open: the true optimum of the stated space, with most of it never built.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/stop.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/search/estimate.hpp"
#include "common/search/explain.hpp"
#include "common/search/space.hpp"

namespace plumb {

// What weighs candidates without building whole plans for most of them; one for each thread, each with the same
// answers. All three throw InputError for what cannot be built.
struct Weigher {
  std::function<Seconds(const Family&)> time_bound;  // no candidate of the family takes less
  std::function<Bytes(const Family&)> memory_bound;  // … needs less on its fullest rank
  // May throw SlowerThanAsked where it is sure to take more than `at_most`.
  std::function<Estimate(const Family&, const SplitChoice&, std::optional<Seconds> at_most)> weigh;
  // The family's dynamic split, searched thoroughly; none: no better one is looked for.
  std::function<Split(const Family&)> refined = {};
  // Told what ends the search, which outlives this: then long calls of weigh throw Stopped. None: they cannot.
  std::function<void(const Stop&)> watch = {};
};
using MakeWeigher = std::function<Weigher(const Scenario&)>;

// By whole plans, with bounds of zero: what faster ones are held against. And by FastEvaluator.
[[nodiscard]] Weigher slow_weigher(const Scenario& scenario);
[[nodiscard]] Weigher fast_weigher(const Scenario& scenario);

struct SearchProgress {
  std::int64_t done = 0;  // candidates that are disposed of
  std::int64_t total = 0;
  std::int64_t weighed = 0;          // of these: the others were refused, or too large by their bounds
  std::int64_t beyond = 0;           // that are not disposed of, but too slow by their bounds as things stand
  bool left_is_known = false;        // whether all others wait to be weighed: bounds are there, and `beyond` is counted
  std::int64_t predicted = 0;        // by the engine
  std::int64_t to_predict = 0;       // that are to follow, as things stand: they may be faster, or the table lacks rows
  std::optional<Seconds> best = {};  // that fits, so far: by the engine once it has predicted one
};

struct SearchOptions {
  int top = 10;       // rows of the table; at least one
  int jobs = 1;       // threads
  int processes = 1;  // that predict by the engine: SimGrid allows one engine a process
  bool prune = true;  // leave out what the memory bound excludes
  bool bound = true;  // leave out what the time bound excludes
  bool pareto = false;
  std::optional<std::chrono::duration<double>> time_limit = {};
  const std::atomic<bool>* stop = nullptr;  // true: end with the best so far
  std::function<void(const SearchProgress&)> progress = {};
};

// Of the front of time against memory: no candidate that fits is both faster and smaller.
struct ParetoPoint {
  std::int64_t candidate = 0;  // by number in the space
  Seconds iteration = {};      // by the longest path
  Bytes peak_bytes = {};
  bool operator==(const ParetoPoint&) const = default;
};

struct SearchResult {
  // The best, of the scenario's own splits, and the uniform split of the best one's family; where the best has
  // different data degrees by stage, a layout without. Where nothing fits: what needs least on its fullest rank of the
  // whole space, or what cannot be built.
  PlanningResult planning = {};
  std::int64_t candidates = 0;     // in the space; pruned + unproven + bounded + evaluated + left
  bool finished = true;            // false: ended by time or by hand, so the best is only the best so far
  std::int64_t not_predicted = 0;  // then: of those that were weighed, what the engine was to predict yet
  std::vector<LeftOut> explanation = {};
  std::vector<ParetoPoint> pareto = {};  // if asked for, by time
};

// Prunes by memory, bounds by time, weighs the rest by the longest path in the order of its bounds, then predicts the
// best by `engine` in the order of their path times: at least `top`, and on as long as a path time is below the best
// prediction. Engines only add contention to the longest path, or stay below it: by at most 2% where messages are
// exchanged in batches, by at most 5% where stages have different data degrees. Both margins are assumed; as far as
// they hold, nothing that is left out can be better. Families are bounded by the larger of the path time that the best
// prediction may have and the last path time of the table. What fits is decided by the longest path and must hold by
// the engine too. In the end the best one's dynamic split is searched thoroughly.
//
// The same result whatever the number of threads and processes: they work on rounds of families, and of candidates to
// predict, whose size depends on neither, and bounds change between rounds. Ties go to less memory, then to the smaller
// number. Unless it is ended early: then the best so far, or a RunError if nothing that fits was found so far.
[[nodiscard]] SearchResult search(const SearchSpace& space, const MakeWeigher& make_weigher, const Evaluator& engine,
                                  const SearchOptions& options);

}  // namespace plumb
