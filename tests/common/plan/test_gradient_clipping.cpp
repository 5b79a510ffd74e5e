// Plans whose gradients are clipped by the norm of all: the action that every rank has, and what it waits for.
#include "common/plan/gradient_clipping.hpp"

#include <algorithm>
#include <map>

#include "common/graph/schedule_graph.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/plan_files.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

LayoutCase clipped(std::string schedule, int pipeline = 2, int data = 2) {
  return {.nodes = 4,
          .pipeline = pipeline,
          .data = data,
          .schedule = std::move(schedule),
          .training = ", gradient_clipping: 1.0"};
}

Plan without_clipping(Plan plan) {
  plan.training.gradient_clipping = 0;
  plan.costs.gradient_clipping = {};
  return plan;
}

// Of each rank when the last action of the kinds that `counts` names ends.
std::map<int, Seconds> last_ends(const StepTimeline& step, bool (*counts)(ActionKind)) {
  std::map<int, Seconds> ends;
  for (const Event& event : step.events) {
    if (counts(event.action.kind)) ends[event.rank] = std::max(ends[event.rank], event.end);
  }
  return ends;
}

std::string problems_of(const Schedule& lowered, const std::function<void(std::vector<Action>&)>& change) {
  Schedule changed = lowered;
  change(changed.actions[1]);
  std::string text;
  for (const ScheduleProblem& problem : validate(changed)) text += problem.text + "\n";
  return text;
}

}  // namespace

TEST_CASE("every rank clips once, behind its reductions and before its steps") {
  for (const std::string schedule :
       {"gpipe", "1f1b", "zb-h1", "zb-v", "dualpipe-v", "dualpipe", "{name: interleaved-1f1b, chunks: 2}"}) {
    CAPTURE(schedule);
    const Plan plan = plan_of(clipped(schedule, 2, schedule == "dualpipe" ? 1 : 2));
    const Schedule lowered = lowered_schedule(plan);
    REQUIRE(validate(lowered).empty());
    for (const std::vector<Action>& list : lowered.actions) {
      const auto clip = std::ranges::find(list, ActionKind::clip_gradients, &Action::kind);
      REQUIRE(clip != list.end());
      CHECK(std::all_of(list.begin(), clip, [](const Action& a) { return a.kind != ActionKind::optimizer_step; }));
      CHECK(std::all_of(clip + 1, list.end(), [](const Action& a) { return a.kind == ActionKind::optimizer_step; }));
    }
    CHECK(lower(without_messages(lowered), {}).actions == lower(plan.schedule, {}).actions);
  }
}

// The longest path by hand: the last gradient of all ranks and their reductions, one after the other, the norm, the
// longest of the ranks' steps.
TEST_CASE("no rank steps before the last gradient of all, and all know the norm at once") {
  for (const std::string schedule : {"1f1b", "zb-h1", "{name: interleaved-1f1b, chunks: 2}"}) {
    for (const int data : {1, 2}) {
      CAPTURE(schedule, data);
      const Plan plan = plan_of(clipped(schedule, 4, data));
      const Timeline timeline = predict_by_path(plan);
      const StepTimeline& step = timeline.steps.front();
      const std::map<int, Seconds> computed = last_ends(step, is_compute);
      Seconds last;
      Seconds longest;
      for (int rank = 0; rank < 4; ++rank) {
        Seconds steps;
        Seconds reductions;
        for (const int stage : stages_of_rank(plan.schedule, rank)) {
          const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
          steps += cost.optimizer;
          reductions += cost.gradient_reduction;
        }
        last = std::max(last, computed.at(rank) + reductions);
        longest = std::max(longest, steps);
      }
      CHECK(step.duration.value == Approx((last + plan.costs.gradient_clipping + longest).value).epsilon(1e-12));
      const auto ends = last_ends(step, [](ActionKind kind) { return kind == ActionKind::clip_gradients; });
      REQUIRE(ends.size() == 4);
      for (const auto& [rank, end] : ends) {
        CHECK(end.value == Approx((last + plan.costs.gradient_clipping).value).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("the norm goes around all ranks of the layout, also of one pipeline rank") {
  CHECK(clipping_time(plan_of(clipped("1f1b", 1, 1))) == Seconds{});
  const Seconds few = clipping_time(plan_of(clipped("1f1b", 1, 2)));
  const Seconds many = clipping_time(plan_of(clipped("1f1b", 4, 8)));
  CHECK(few > Seconds{});
  CHECK(many > few);
  CHECK(clipping_time(without_clipping(plan_of(clipped("1f1b", 4, 8)))) == Seconds{});
}

TEST_CASE("with all ranks of the layout the clipped step takes as long") {
  for (const auto& [pipeline, data] : {std::pair(1, 1), {1, 4}, {2, 1}, {2, 4}}) {
    CAPTURE(pipeline, data);
    const Plan plan = plan_of(clipped("1f1b", pipeline, data));
    const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
    const ScheduleGraph all = unfolded_graph(plan, folded).graph;
    CHECK(evaluate(all).makespan.value == Approx(evaluate(folded).makespan.value).epsilon(1e-9));
    CHECK(std::ranges::count(all.nodes, ActionKind::clip_gradients, [](const Node& n) { return n.action.kind; }) == 1);
  }
}

// Reading and scaling fp32 gradients: 12 bytes a parameter more than the optimizer moves.
TEST_CASE("clipping reads the gradients once more and scales them") {
  const Plan plan = plan_of(clipped("1f1b"));
  const Plan never = plan_of(LayoutCase{.nodes = 4, .data = 2});
  const DeviceProfile& device = plan.cluster.machine.device;
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    const Seconds more = streaming_time(device, 12.0 * static_cast<double>(cost.parameters));
    CHECK((cost.optimizer - never.costs.stages[stage].optimizer).value == Approx(more.value).epsilon(0.01));
  }
}

TEST_CASE("lists that clip elsewhere, twice or not at all are found") {
  const Schedule lowered = lowered_schedule(plan_of(clipped("{name: interleaved-1f1b, chunks: 2}")));
  const auto at = [](std::vector<Action>& list) {
    return std::ranges::find(list, ActionKind::clip_gradients, &Action::kind);
  };
  CHECK_THAT(problems_of(lowered, [&](std::vector<Action>& list) { list.erase(at(list)); }),
             ContainsSubstring("1CLIP is missing, but other ranks clip theirs"));
  CHECK_THAT(problems_of(lowered, [&](std::vector<Action>& list) { list.push_back(*at(list)); }),
             ContainsSubstring("1CLIP stands there a second time"));
  CHECK_THAT(problems_of(lowered, [&](std::vector<Action>& list) { std::iter_swap(at(list), at(list) + 1); }),
             ContainsSubstring("1STEP stands before 1CLIP, which it needs"));
  CHECK_THAT(problems_of(lowered, [&](std::vector<Action>& list) { std::iter_swap(at(list), at(list) - 1); }),
             ContainsSubstring("1CLIP stands before 3REDUCE_GRAD, which it needs"));
  CHECK_THAT(problems_of(lowered, [&](std::vector<Action>& list) { at(list)->stage = 3; }),
             ContainsSubstring("stands once on a rank and names its first stage: 1CLIP"));
}

TEST_CASE("gradients are not clipped where weights are updated within a step") {
  CHECK_THROWS_WITH(plan_of(clipped("pipedream", 2, 1)),
                    ContainsSubstring("gradients are clipped once a step") && ContainsSubstring("pipedream"));
}

TEST_CASE("a plan may not be edited into one that clips where weights are updated within a step") {
  const auto clip = [](Plan& plan) { plan.training.gradient_clipping = 1; };
  CHECK_THAT(message_after(plan_of(LayoutCase{.schedule = "pipedream"}), clip),
             ContainsSubstring("plan.json:") && ContainsSubstring("training.gradient_clipping: ") &&
                 ContainsSubstring("updates weights within a step: pipedream") &&
                 ContainsSubstring("hint: gradient_clipping: 0, or schedule: 1f1b"));
  CHECK(message_after(plan_of(LayoutCase{}), clip) == "no error");
}
