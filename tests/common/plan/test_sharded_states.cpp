// Plans whose data-parallel ranks share out the optimizer's states: memory and traffic by the formulas of arXiv
// 1910.02054, sections 5 and 7, and the actions that the schedule gets.
#include <algorithm>

#include "common/block_cost/block_costs.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

LayoutCase sharded(int data, int pipeline = 2, std::string schedule = "1f1b") {
  return {.nodes = 4,
          .pipeline = pipeline,
          .data = data,
          .schedule = std::move(schedule),
          .software = "{like: plumb, gradients: bf16}",
          .sharding = "zero1"};
}

LayoutCase whole(LayoutCase c) {
  c.sharding = "none";
  return c;
}

ComputeCost sum_of(const Plan& plan) {
  ComputeCost sum;
  for (const ComputeCost& cost : plan.costs.stages) {
    sum.parameters += cost.parameters;
    sum.parameter_bytes += cost.parameter_bytes;
    sum.gradient_bytes += cost.gradient_bytes;
    sum.optimizer_bytes += cost.optimizer_bytes;
    sum.gathered_bytes += cost.gathered_bytes;
  }
  return sum;
}

}  // namespace

// Section 5.1: 2Ψ + 2Ψ + 12Ψ/n of 16-bit weights and gradients; every weight here has a multiple of 16 elements.
TEST_CASE("states that are shared out take 4Ψ + 12Ψ/n") {
  for (const int data : {2, 4, 8, 16}) {
    const ComputeCost sum = sum_of(plan_of(sharded(data)));
    const double psi = static_cast<double>(sum.parameters);
    const Bytes all = sum.parameter_bytes + sum.gradient_bytes + sum.optimizer_bytes;
    CHECK(static_cast<double>(all.value) == 4 * psi + 12 * psi / data);
    CHECK(sum.gathered_bytes == sum.parameter_bytes);
    CHECK(sum_of(plan_of(whole(sharded(data)))).optimizer_bytes == std::int64_t{data} * sum.optimizer_bytes);
  }
}

// A weight of fewer elements than ranks: the first ones have one each.
TEST_CASE("parts of a weight are as near to equal as can be, and the largest counts") {
  const ParameterShare share = all_trained(10, 4);
  CHECK(share.updated == 3);
  CHECK(all_trained(3, 8).updated == 1);
  const StateBytes states = state_bytes(share, {.precision = ElementType::bf16, .optimizer = Optimizer::adam});
  CHECK(states.optimizer == Bytes{12 * 3});
  CHECK(states.gradients == Bytes{4 * 10});
}

// Section 7.1: a reduce-scatter of Ψ gradients and an all-gather of Ψ weights, each (n−1)/n around a ring.
TEST_CASE("ranks receive (n−1)/n of the gradients and of the weights") {
  for (const int data : {2, 8}) {
    const Plan plan = plan_of(sharded(data));
    const ComputeCost& cost = plan.costs.stages.front();
    const double part = static_cast<double>(data - 1) / data;
    const AxisTraffic axes = predict_by_path(plan).ranks.front().by_axis.value();
    CHECK(static_cast<double>(axes.data.value) ==
          part * static_cast<double>(cost.gradient_bytes.value + cost.gathered_bytes.value));
    CHECK(axes.data == predict_by_path(plan_of(whole(sharded(data)))).ranks.front().by_axis.value().data);
  }
}

TEST_CASE("weights are gathered behind all steps of a rank, one stage after the other") {
  for (const std::string schedule : {"1f1b", "zb-h1", "{name: interleaved-1f1b, chunks: 2}"}) {
    CAPTURE(schedule);
    const Plan plan = plan_of(sharded(4, 2, schedule));
    const Schedule lowered = lowered_schedule(plan);
    REQUIRE(validate(lowered).empty());
    for (const std::vector<Action>& list : lowered.actions) {
      const auto first = std::ranges::find(list, ActionKind::unshard, &Action::kind);
      CHECK(list.end() - first == plan.schedule.chunks);
      CHECK(std::all_of(first, list.end(), [](const Action& a) { return a.kind == ActionKind::unshard; }));
      CHECK(std::prev(first)->kind == ActionKind::optimizer_step);
    }
    for (const ComputeCost& cost : plan.costs.stages) CHECK(cost.weight_gathering > Seconds{});
    const ScheduleGraph folded = build_graph(lowered, plan.costs);
    const Seconds step = evaluate(folded).makespan;
    CHECK(evaluate(unfolded_graph(plan, folded).graph).makespan.value == Approx(step.value).epsilon(1e-9));
    Seconds gathering;
    for (const Node& node : folded.nodes) {
      if (node.action.kind == ActionKind::unshard && node.rank == 0) gathering += node.duration;
    }
    CHECK(step >= gathering);
  }
}

TEST_CASE("a reduce-scatter takes half of an all-reduce, and an optimizer of shards a part of its time") {
  const Plan shards = plan_of(sharded(8));
  const Plan all = plan_of(whole(sharded(8)));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const ComputeCost& part = shards.costs.stages[stage];
    const ComputeCost& one = all.costs.stages[stage];
    CHECK(part.gradient_reduction.value == Approx(one.gradient_reduction.value / 2).epsilon(1e-6));
    // Of 8 ranks each reads and writes an eighth of weights, gradients and states, and clears all its gradients.
    CHECK(part.optimizer < one.optimizer * 0.25);
    CHECK(part.optimizer > one.optimizer / 8);
    CHECK(one.weight_gathering == Seconds{});
    CHECK(one.gathered_bytes == Bytes{});
  }
}

TEST_CASE("lists that gather weights elsewhere are found") {
  const Schedule lowered = lowered_schedule(plan_of(sharded(4)));
  const auto problems = [&](const auto& change) {
    Schedule changed = lowered;
    change(changed.actions[1]);
    std::string text;
    for (const ScheduleProblem& problem : validate(changed)) text += problem.text + "\n";
    return text;
  };
  CHECK_THAT(problems([](std::vector<Action>& list) { list.pop_back(); }), ContainsSubstring("1UNSHARD"));
  CHECK_THAT(problems([](std::vector<Action>& list) { std::swap(list[list.size() - 1], list[list.size() - 2]); }),
             ContainsSubstring("1UNSHARD") && ContainsSubstring("1STEP"));
  CHECK_THAT(problems([](std::vector<Action>& list) { list.push_back(list.back()); }),
             ContainsSubstring("1UNSHARD stands there a second time"));
  CHECK_THAT(problems([](std::vector<Action>& list) {
               std::erase_if(list, [](const Action& a) { return a.kind == ActionKind::optimizer_step; });
             }),
             ContainsSubstring("1STEP"));
}

TEST_CASE("unsupported combinations with sharded states are refused by name") {
  CHECK_THROWS_WITH(plan_of(sharded(2, 2, "dualpipe")),
                    ContainsSubstring("sharding zero1 cannot be planned yet") && ContainsSubstring("dualpipe"));
  CHECK_THROWS_WITH(plan_of(sharded(2, 2, "pipedream")), ContainsSubstring("pipedream"));
}
