// Slices of equal work by the cost model: even, in multiples, never worse; and what a plan predicts of them.
#include "common/planner/slice_tokens.hpp"

#include <algorithm>
#include <numeric>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/graph/evaluate.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/traffic.hpp"
#include "tests/catch.hpp"
#include "tests/common/block_cost/analytic_profile.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/steps.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

struct SlicedCase {
  std::string layers = "full/dense*8";
  std::int64_t sequence = 32768;
  std::string machine = "dgx-a100";
  std::string layout = "{pipeline: 4}";
  int ranks = 4;
  int hidden = 1024;
};

Scenario sliced_scenario(const SlicedCase& c) {
  const std::string hidden = std::to_string(c.hidden);
  return read_text(
      "model: {vocabulary: 4096, hidden: " + hidden + ", heads: 16, ffn: " + std::to_string(4 * c.hidden) +
      ", window: 512, tied_embeddings: false, layers: \"" + c.layers + "\"}\ncluster: {machine: " + c.machine +
      ", ranks: " + std::to_string(c.ranks) + "}\ntraining: {sequence: " + std::to_string(c.sequence) +
      ", microbatch: 1, precision: bf16, global_batch: 8}\nlayout: " + c.layout + "\nschedule: 1f1b\nsplit: uniform\n");
}

PlanChoice choice_of(int slices, SlicesBy by) {
  return {.microbatch = 1,
          .schedule = {.name = "seq-1f1b", .slices = slices, .slices_by = by},
          .split = {.method = SplitMethod::uniform}};
}

Seconds work_of(const Scenario& scenario, Slice slice) {
  Seconds sum;
  for (const ComputeCost& block : block_costs(scenario, 1, {slice})) sum += microbatch_time(block, false);
  return sum;
}

Seconds longest(const Scenario& scenario, const std::vector<Slice>& slices) {
  Seconds most;
  for (const Slice& slice : slices) most = std::max(most, work_of(scenario, slice));
  return most;
}

std::int64_t sum(const std::vector<std::int64_t>& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("later slices of equal work under full attention are shorter and take nearly equal time") {
  const Scenario scenario = sliced_scenario({});
  for (const int slices : {2, 4}) {
    const std::vector<std::int64_t> tokens = slice_tokens(scenario, choice_of(slices, SlicesBy::work));
    REQUIRE(tokens.size() == static_cast<std::size_t>(slices));
    CHECK(sum(tokens) == 32768);
    CHECK(std::ranges::is_sorted(tokens, std::greater<>()));
    for (const std::int64_t own : tokens) CHECK(own % slice_multiple(scenario, slices) == 0);
    Seconds least = longest(scenario, slices_of(tokens));
    for (const Slice& slice : slices_of(tokens)) least = std::min(least, work_of(scenario, slice));
    const double spread = longest(scenario, slices_of(tokens)) / least;
    const double equal = longest(scenario, equal_slices(32768, slices)) / work_of(scenario, {.tokens = 32768 / slices});
    INFO("spread " << spread << ", of equal tokens " << equal);
    CHECK(spread - 1 < 0.1 * (equal - 1));
  }
}

TEST_CASE("work that the place in the sequence does not change is cut into equal tokens") {
  CHECK(slice_tokens(sliced_scenario({.layers = "none/dense*4"}), choice_of(4, SlicesBy::work)).empty());
}

TEST_CASE("slices have whole tiles and chunks, or parts of them in short sequences, and the ranks' parts of tokens") {
  CHECK(slice_multiple(sliced_scenario({}), 4) == 128);
  CHECK(slice_multiple(sliced_scenario({.sequence = 4096}), 4) == 128);
  CHECK(slice_multiple(sliced_scenario({.sequence = 4096}), 16) == 32);
  CHECK(slice_multiple(sliced_scenario({.sequence = 64}), 4) == 2);
  const std::string parallel = "{pipeline: 2, tensor: {degree: 4, sequence_parallel: true}}";
  CHECK(slice_multiple(sliced_scenario({.sequence = 64, .layout = parallel, .ranks = 8}), 4) == 4);
  const Scenario scenario = sliced_scenario({.sequence = 1000, .layout = parallel, .ranks = 8});
  const std::vector<std::int64_t> tokens = slice_tokens(scenario, choice_of(4, SlicesBy::work));
  REQUIRE(tokens.size() == 4);  // 250 are no multiple of the degree
  for (const std::int64_t own : tokens) CHECK(own % 4 == 0);
  CHECK(make_plan(scenario, choice_of(4, SlicesBy::work)).schedule.slice_tokens == tokens);
}

TEST_CASE("a plan with slices of equal work is never slower than one with equal tokens, and faster of long sequences") {
  std::size_t tried = 0;
  for (const std::int64_t sequence : {1024, 4096, 32768}) {
    for (const char* layers : {"full/dense*8", "(full/dense, sliding/dense)*4", "linear/dense*8"}) {
      for (const int slices : {2, 4, 8}) {
        if (!testing::tries(tried++)) continue;
        const Scenario scenario = sliced_scenario({.layers = layers, .sequence = sequence});
        const Step equal = step_of(make_plan(scenario, choice_of(slices, SlicesBy::tokens)));
        const Step work = step_of(make_plan(scenario, choice_of(slices, SlicesBy::work)));
        INFO(layers << ", sequence " << sequence << ", slices " << slices);
        CHECK(work.time <= equal.time * (1 + 1e-9));
        if (sequence == 32768 && std::string(layers) == "full/dense*8") CHECK(work.time < equal.time * 0.98);
      }
    }
  }
  // Where slices do not divide the sequence there are no equal ones.
  const Plan odd = make_plan(sliced_scenario({.sequence = 10000}), choice_of(3, SlicesBy::work));
  CHECK(sum(odd.schedule.slice_tokens) == 10000);
}

// Measured as the analytic costs say: a profile of whole sequences, whose slices have what they have of the FLOPs.
TEST_CASE("slices of equal work are taken by a profile, too, as even as FLOPs tell") {
  const std::int64_t sequence = GENERATE(2048, 32768);  // of the shorter, coarse multiples make equal tokens
  Scenario scenario = sliced_scenario({.sequence = sequence});
  scenario.profile = analytic_profile(scenario);
  const Plan plan = make_plan(scenario, choice_of(4, SlicesBy::work));
  REQUIRE(plan.schedule.slice_tokens.size() == 4);
  CHECK(std::ranges::is_sorted(plan.schedule.slice_tokens, std::greater<>()));
  const ComputeCost all = in_sequence(block_costs(scenario, 1, slices_of(plan)));
  for (int slice = 0; slice < 4; ++slice) {
    const ActionTimes times = times_of(all, slice);
    CHECK((times.forward + backward_time(times)).value ==
          Approx(microbatch_time(all, false).value).epsilon(sequence > 2048 ? 0.02 : 0.06));  // multiples of 64 in 512
  }
}

TEST_CASE("the same scenario has the same slices") {
  const Scenario scenario = sliced_scenario({.layers = "(full/dense, sliding/dense)*4"});
  CHECK(slice_tokens(scenario, choice_of(4, SlicesBy::work)) == slice_tokens(scenario, choice_of(4, SlicesBy::work)));
}

TEST_CASE("each action takes its slice's time, and each message its slice's bytes") {
  LayoutCase c{.schedule = "{name: seq-1f1b, slices: [256, 160, 96]}"};
  const Plan plan = plan_of(c);
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  int messages = 0;
  for (const Node& node : graph.nodes) {
    const int slice = std::max(0, node.action.microbatch) % 3;
    const std::int64_t tokens = plan.schedule.slice_tokens[static_cast<std::size_t>(slice)];
    if (node.kind == NodeKind::transfer) {
      ++messages;
      CHECK(node.bytes.value == tokens * 1024 * 2);
      CHECK(node.duration.value ==
            Approx((plan.costs.inside.latency + node.bytes / plan.costs.inside.bandwidth).value).epsilon(1e-12));
    }
    if (node.action.kind != ActionKind::forward) continue;
    CHECK(
        node.duration ==
        plan.costs.stages[static_cast<std::size_t>(node.action.stage)].slices[static_cast<std::size_t>(slice)].forward);
  }
  CHECK(messages == 2 * 16 * 3);
}

// With equal tokens the links' latency has it: slice by slice it must be the same.
TEST_CASE("values scattered over a tensor group are gathered slice by slice") {
  LayoutCase c{
      .tensor = 4, .schedule = "{name: seq-1f1b, slices: 2}", .software = "{like: plumb, scattered_messages: true}"};
  const auto transfer_of_first_slice = [](const Plan& plan) {
    const ScheduleGraph graph = build_graph(lowered_schedule(plan), plan.costs);
    return std::ranges::find_if(
               graph.nodes,
               [](const Node& node) { return node.kind == NodeKind::transfer && node.action.microbatch == 0; })
        ->duration;
  };
  const Plan equal = plan_of(c);
  c.schedule = "{name: seq-1f1b, slices: [256, 128, 128]}";
  const Plan plan = plan_of(c);
  REQUIRE(plan.costs.slice_gathering.size() == 3);
  CHECK(plan.costs.slice_gathering[0] > plan.costs.slice_gathering[1]);
  CHECK(transfer_of_first_slice(plan).value == Approx(transfer_of_first_slice(equal).value).epsilon(1e-12));
}

TEST_CASE("slices of different lengths receive what the whole sequence does in collectives of tensor parallelism") {
  for (const bool parallel : {false, true}) {
    LayoutCase c{.tensor = 4, .sequence_parallel = parallel, .schedule = "{name: seq-1f1b, slices: 4}"};
    const Timeline equal = predict_by_path(plan_of(c));
    c.schedule = "{name: seq-1f1b, slices: [256, 128, 96, 32]}";
    const Timeline timeline = predict_by_path(plan_of(c));
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      CHECK(timeline.ranks[rank].received_bytes == equal.ranks[rank].received_bytes);
    }
  }
}

TEST_CASE("impossible slices are refused, naming possible ones") {
  const Scenario stages = sliced_scenario({.layout = "{data: {by_stage: [2, 1]}}", .ranks = 3});
  CHECK_THROWS_WITH(make_plan(stages, choice_of(4, SlicesBy::work)),
                    ContainsSubstring("data degrees by stage cannot be planned yet with slices of different lengths"));
  const Scenario parallel = sliced_scenario(
      {.sequence = 4096, .layout = "{pipeline: 2, tensor: {degree: 4, sequence_parallel: true}}", .ranks = 8});
  PlanChoice choice = choice_of(2, SlicesBy::tokens);
  choice.schedule.slice_tokens = {2046, 2050};
  CHECK_THROWS_WITH(make_plan(parallel, choice), ContainsSubstring("the 4 ranks of a tensor group"));
  choice.schedule.slice_tokens = {2048, 2047};
  CHECK_THROWS_WITH(make_plan(sliced_scenario({.sequence = 4096}), choice), ContainsSubstring("= 4095 tokens"));
}
