// Weighs a scenario's candidates and picks the fastest that fits in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Predicts a plan's timeline; the two implementations are the critical path and SimGrid.
using Evaluator = std::function<Timeline(const Plan&)>;

// The producer of timelines by the longest path.
inline constexpr std::string_view path_engine = "path";

// By the longest path through the plan's graph: exact where nothing contends.
[[nodiscard]] Timeline predict_by_path(const Plan& plan);

// From when each node starts and ends to a timeline with rank summaries; shared by both engines.
[[nodiscard]] Timeline predicted_timeline(const Plan& plan, const Schedule& lowered, const ScheduleGraph& graph,
                                          const Evaluation& evaluation, const std::string& engine);

// What a timeline says of each rank, and its one step.
struct PredictedStep {
  std::vector<RankSummary> ranks;
  StepTimeline step;
  std::vector<std::vector<MemoryPoint>> memory;  // per rank
};
[[nodiscard]] PredictedStep predicted_step(const Schedule& lowered, const PipelineCosts& costs,
                                           const ScheduleGraph& graph, const Evaluation& evaluation);

struct Candidate {
  PlanChoice choice = {};
  bool own = true;     // the scenario names its split; false: a uniform one, weighed to compare
  bool built = false;  // what follows is empty otherwise
  Plan plan = {};
  std::string engine = {};  // the producer of its timeline
  Seconds iteration = {};
  std::vector<RankSummary> ranks = {};
  Bytes peak_bytes = {};  // of the fullest rank
  bool fits = false;
  std::string reason = {};               // why it cannot be built or does not fit; empty otherwise
  std::string hint = {};                 // of one that cannot be built, what would help, where that is known
  std::string where = {};                // likewise, what refuses it: "training", "profile"
  std::optional<Seconds> at_least = {};  // not built: more than another that fits takes, and long to make
  bool unproven = false;                 // not built: its split was neither found nor ruled out in time
};

// When a candidate is evaluated: the likeliest and the quickest first, so that what is found bounds the others and an
// early end has a plan.
enum class Turn : std::uint8_t {
  likely,     // 1F1B with a split that needs no search
  quick,      // any schedule with such a split
  searched,   // a dynamic split over one stage a rank
  several,    // a dynamic split over several stages a rank: up to a second each
  for_times,  // a cost-driven schedule: seconds each
};
[[nodiscard]] Turn turn_of(const PlanChoice& choice, const Layout& layout, const Recompute& recompute);

// Predicts by `engine` within a fraction of a second, else by the longest path: for what remains to be done once a time
// limit is over.
[[nodiscard]] Evaluator within_grace(const Evaluator& engine);

// The uniform split of a choice, unless it stands among the candidates.
[[nodiscard]] std::optional<PlanChoice> missing_uniform(const std::vector<Candidate>& candidates, PlanChoice choice);

// One combination, built and not yet predicted; or why it cannot be. And with what an engine predicts of its plan.
[[nodiscard]] Candidate build_candidate(const Scenario& scenario, const PlanChoice& choice,
                                        const PlanEffort& effort = {});
struct CandidatePrediction {
  std::string engine = {};
  Seconds iteration = {};
  std::vector<RankSummary> ranks = {};
};
[[nodiscard]] CandidatePrediction candidate_prediction(const Timeline& timeline);
void add_prediction(Candidate& candidate, CandidatePrediction prediction);
// A built one, predicted; or why the engine refuses it.
[[nodiscard]] Candidate predicted(Candidate candidate, const Evaluator& evaluator);

// One combination, built and predicted; or why it cannot be.
[[nodiscard]] Candidate weigh_candidate(const Scenario& scenario, const PlanChoice& choice, const Evaluator& evaluator,
                                        const PlanEffort& effort = {});

// Fitting ones by time and, as fast as each other, by memory; shortfalls by memory, then those that cannot be built.
[[nodiscard]] bool stands_before(const Candidate& a, const Candidate& b);

// Counts are of candidates; where all are evaluated (plan_scenario), only long cost-driven schedules are bounded.
struct PlanningResult {
  std::vector<Candidate> candidates;  // as they stand before each other
  std::int64_t pruned = 0;            // cannot be built, or cannot fit in memory
  std::int64_t unproven = 0;          // whether a split of them fits took too long to prove
  std::int64_t bounded = 0;           // left out because a bound of theirs was worse than the best
  std::int64_t evaluated = 0;         // by the longest path
  std::int64_t simulated = 0;         // by another engine
  std::int64_t left = 0;              // not looked at, because it was told to end
};

// `best`: of what fits so far; longest_time: nothing.
using PlanningProgress = std::function<void(int done, int total, Seconds best)>;

// All combinations of the scenario's layouts, microbatches, recompute modes, schedules and splits, and of the uniform
// split, which is always weighed, also where it is not one of the scenario's own, in the order of their turns.
// `progress(done, total, best)` is called after each with the best step that fits. Told to end, it keeps what it has
// and weighs the best one's uniform split, unless a schedule is made for it; throws RunError if that is no candidate of
// the scenario's own that fits.
[[nodiscard]] PlanningResult plan_scenario(const Scenario& scenario, const Evaluator& evaluator,
                                           const PlanningProgress& progress = {}, const Stop* stop = nullptr);

// RunError: told to end too early.
[[noreturn]] void throw_ended_early();

// The first of the scenario's own that fits. Throws InputError that says by how much the smallest one exceeds the
// memory of a rank, what takes most of it, and which one-line changes of the scenario (tried here) would fit.
[[nodiscard]] const Candidate& best_fitting(const PlanningResult& result, const Scenario& scenario);

}  // namespace plumb
