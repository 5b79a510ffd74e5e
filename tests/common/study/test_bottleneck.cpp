// The rank that bounds a step, against sums by hand.
#include "common/study/bottleneck.hpp"

#include "tests/catch.hpp"

using namespace plumb;

namespace {

Plan plan_with(const std::vector<double>& forward, const std::vector<int>& rank_of_stage, int ranks) {
  Plan plan;
  plan.schedule.ranks = ranks;
  plan.schedule.rank_of_stage = rank_of_stage;
  for (const double time : forward) {
    ComputeCost cost;
    cost.forward = {time};
    cost.input_gradient = {1};
    cost.weight_gradient = {2};
    plan.costs.stages.push_back(cost);
  }
  return plan;
}

}  // namespace

TEST_CASE("the rank with the longest microbatch bounds the step") {
  const Plan plan = plan_with({1, 2, 6}, {0, 1, 2}, 3);
  CHECK(bottleneck(plan) == Bottleneck{.rank = 2, .time = {9}, .mean = {6}});
  CHECK(describe_bottleneck(plan) == "rank 2 (stage 2): 9.000 s a microbatch, 50.0% above the mean of the ranks");
}

TEST_CASE("a rank's stages count together, and F twice where it is redone") {
  Plan plan = plan_with({1, 2, 6, 4}, {0, 1, 0, 1}, 2);
  CHECK(bottleneck(plan) == Bottleneck{.rank = 0, .time = {13}, .mean = {12.5}});
  CHECK(describe_bottleneck(plan).starts_with("rank 0 (stages 0, 2): 13.00 s"));
  plan.schedule.microbatches = 1;
  plan.schedule.actions = {{}, {{ActionKind::recompute, 3, 0}}};
  CHECK(bottleneck(plan) == Bottleneck{.rank = 1, .time = {16}, .mean = {14.5}});
}

TEST_CASE("the first of equal ranks is named") { CHECK(bottleneck(plan_with({3, 3}, {0, 1}, 2)).rank == 0); }
