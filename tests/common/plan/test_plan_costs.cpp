// What a plan's messages and reductions cost beside its stages, against closed forms of their parts.
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"

#include <algorithm>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/planner/make_plan.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double boundary = 512.0 * 1024 * 2;  // bytes: tokens of a microbatch × hidden × bf16

// What an all-reduce of n ranks takes beside its bytes.
double start_of(const Machine& machine, double n) {
  return machine.collective_latency.value.value + n * machine.collective_latency_per_rank.value.value;
}

// A ring's all-gather of so many bytes over a tensor group on one machine: of an all-reduce the half.
double gathering(const Machine& machine, double n, double bytes) {
  return start_of(machine, n) / 2 + (n - 1) / n * bytes / machine.collective_bandwidth.value.value;
}

}  // namespace

// arXiv 2104.04473, section 4.1: each rank of a tensor group sends its part, and what arrived is gathered.
TEST_CASE("scattered messages carry a rank's part and arrive when they are gathered") {
  for (const int tensor : {2, 4}) {
    const Plan plan = plan_of({.nodes = tensor / 2, .pipeline = 4, .tensor = tensor, .software = "megatron-2022"});
    const Machine& machine = plan.cluster.machine;
    const double gathered = gathering(machine, tensor, boundary);
    CHECK(plan.costs.boundary_bytes.value == static_cast<std::int64_t>(boundary) / tensor);
    CHECK(plan.costs.inside.latency.value == Approx(machine.inside.latency.value.value + gathered));
    CHECK(plan.costs.outside.latency.value == Approx(machine.outside.latency.value.value + gathered));
  }
}

TEST_CASE("nothing is gathered where messages are sent whole, are divided already, or there is nobody to share with") {
  for (const LayoutCase& c :
       {LayoutCase{.nodes = 2, .pipeline = 4, .tensor = 4, .software = "plumb"},
        LayoutCase{.pipeline = 8, .tensor = 1, .software = "megatron-2022"},
        LayoutCase{.nodes = 2, .pipeline = 4, .tensor = 4, .sequence_parallel = true, .software = "megatron-2022"}}) {
    CAPTURE(c.software, c.tensor, c.sequence_parallel);
    const Plan plan = plan_of(c);
    const Machine& machine = plan.cluster.machine;
    const int parts = c.sequence_parallel ? c.tensor : 1;
    CHECK(plan.costs.boundary_bytes.value == static_cast<std::int64_t>(boundary) / parts);
    CHECK(plan.costs.inside.latency.value == machine.inside.latency.value.value);
    CHECK(plan.costs.outside.latency.value == machine.outside.latency.value.value);
  }
}

// Where stages have degrees of their own each boundary has its way: the wider share is gathered.
TEST_CASE("scattered messages between stages of different data degrees are gathered too") {
  const auto latency = [](const std::string& software) {
    const Scenario scenario = read_text(
        "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*8\", tied_embeddings: "
        "false}\ncluster: {machine: dgx-a100, ranks: 6}\n"
        "training: {sequence: 512, microbatch: 1, precision: bf16, global_batch: 24}\n"
        "layout: {pipeline: 2, tensor: {degree: 2}, data: {by_stage: [2, 1]}}\nsplit: uniform\nsoftware: " +
        software + "\n");
    const Plan plan = make_plan(scenario, only_choice(scenario));
    REQUIRE(plan.costs.boundaries.size() == 1);
    return plan.costs.boundaries[0].way.latency.value;
  };
  const Machine machine = plan_of({}).cluster.machine;
  // Two replicas of one sequence each meet one that takes both.
  CHECK(latency("{like: plumb, scattered_messages: true}") - latency("plumb") ==
        Approx(gathering(machine, 2, 2 * boundary)));
}

TEST_CASE("messages and reductions that go from site to site wait for their latency, others do not") {
  const std::string sites = ", sites: {nodes: 1, bandwidth: 10 GB/s, latency: 5 ms}";
  const Plan two_stages = plan_of({.nodes = 2, .pipeline = 2, .tensor = 8, .network = sites});
  const Machine& machine = two_stages.cluster.machine;
  const TransferCost way = transfer_between(two_stages.costs, 0, 1);
  CHECK(way.latency.value == Approx(machine.outside.latency.value.value + 5e-3));
  CHECK(way.bandwidth.value == Approx(10e9 / 8));  // eight ranks of a stage at once

  const Plan reduced = plan_of({.nodes = 2, .pipeline = 1, .tensor = 8, .data = 2, .network = sites});
  const GroupPlacement data = reduction_placement(reduced, 0);
  CHECK(data.step_latency.value == Approx(5e-3));
  CHECK(placement(reduced.layout, MeshAxis::tensor, reduced.cluster).step_latency.value == 0);
  // A ring of two takes two steps; each of eight groups has an eighth of the link.
  const double bytes = static_cast<double>(reduced.costs.stages[0].gradient_bytes.value);
  CHECK(reduced.costs.stages[0].gradient_reduction.value ==
        Approx(start_of(machine, 2) + 2 * 5e-3 + bytes / (10e9 / 8)));
}

// Beside the last backward of a stage, which the schedule's list names: of slices the first of some microbatch. The
// last bucket always shows, here of the embedding and of a part of the first layer.
TEST_CASE("reductions that overlap are hidden by the backward that is a stage's last") {
  const LayoutCase sliced{.nodes = 2, .pipeline = 2, .data = 8, .schedule = "{name: seq-1f1b, slices: 4}"};
  const auto with = [&](const std::string& bucket) {
    LayoutCase c = sliced;
    c.software = "{like: plumb, data_overlap: true, data_bucket: " + bucket + "}";
    return plan_of(c);
  };
  const Plan alone = plan_of(sliced);
  const Plan plan = with("{bytes: 25 MiB}");
  const Plan one = with("{bytes: 1 TiB}");
  const Plan first = with("{parameters: 6553600, first_stage_only: true}");  // in fp32 as many bytes
  for (int stage = 0; stage < 2; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const ComputeCost& cost = plan.costs.stages[at];
    const std::vector<Action>& list = plan.schedule.actions[at];
    const auto last =
        std::find_if(list.rbegin(), list.rend(), [](const Action& a) { return a.kind == ActionKind::backward; });
    REQUIRE(last != list.rend());
    const Seconds hides = backward_time(times_of(cost, last->microbatch));
    REQUIRE(hides < backward_time(cost));  // of the mean slice
    const Seconds whole = alone.costs.stages[at].gradient_reduction;
    REQUIRE(whole > backward_time(cost));
    CHECK(cost.gradient_reduction < whole);
    CHECK(cost.gradient_reduction > whole - hides);
    CHECK(one.costs.stages[at].gradient_reduction.value == Approx(whole.value).epsilon(1e-9));
    const ComputeCost& of_first = first.costs.stages[at];
    CHECK(of_first.gradient_reduction.value ==
          Approx((stage == 0 ? cost.gradient_reduction : whole).value).epsilon(1e-12));
  }
}

// Where W is an action of its own, I has made no gradient of a weight.
TEST_CASE("only W hides a reduction when the backward has two actions") {
  LayoutCase split{.nodes = 2, .pipeline = 2, .data = 8, .schedule = "zb-h1"};
  const Plan alone = plan_of(split);
  split.software = "{like: plumb, data_overlap: true, data_bucket: {bytes: 25 MiB}}";
  const Plan plan = plan_of(split);
  const std::vector<std::vector<BlockGradients>> gradients = gradients_in_backward(plan);
  for (int stage = 0; stage < 2; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const ComputeCost& cost = plan.costs.stages[at];
    const std::vector<Action>& list = plan.schedule.actions[at];
    REQUIRE(std::ranges::find(list, ActionKind::weight_gradient, &Action::kind) != list.end());
    const Seconds hidden = alone.costs.stages[at].gradient_reduction - cost.gradient_reduction;
    CHECK(hidden > Seconds{});
    CHECK(hidden < cost.weight_gradient);
    Seconds blocks;
    for (const BlockGradients& block : gradients[at]) blocks += block.backward;
    CHECK(blocks.value == Approx(cost.weight_gradient.value).epsilon(1e-9));
  }
}

// One stage has the table once, and its second gradient is added to the first before ranks sum it.
TEST_CASE("a tied table on one stage is summed once, and held with two gradients") {
  const auto gradients = [](bool tied, int pipeline) {
    const Plan plan = plan_of({.nodes = 2, .pipeline = pipeline, .data = 16 / pipeline, .tied = tied});
    std::pair<Bytes, Bytes> sum;
    for (const ComputeCost& cost : plan.costs.stages) {
      sum.first += cost.gradient_bytes;
      sum.second += reduced_bytes(cost);
    }
    const Schedule lowered = lowered_schedule(plan);
    Bytes nodes;
    for (const Node& node : build_graph(lowered, plan.costs).nodes) {
      if (is_folded(node)) nodes += node.bytes;
    }
    CHECK(nodes == sum.second);
    return sum;
  };
  const Plan plan = plan_of({});
  const Bytes table{plan.model.vocabulary * plan.model.hidden * 4};
  CHECK(gradients(false, 1).first == gradients(false, 1).second);
  CHECK(gradients(true, 1).first == gradients(false, 1).first);
  CHECK(gradients(true, 1).second == gradients(false, 1).second - table);
  CHECK(gradients(true, 2).second == gradients(false, 2).second);  // two copies
}

TEST_CASE("the step's constant overhead counts once on every rank, independent of its stages") {
  for (const std::string schedule : {"1f1b", "{name: interleaved-1f1b, chunks: 2}", "{name: zb-v, chunks: 2}"}) {
    CAPTURE(schedule);
    const Plan without = plan_of({.schedule = schedule});
    const Plan with = plan_of({.schedule = schedule, .software = "{like: plumb, step_overhead: 20 ms}"});
    for (int rank = 0; rank < 2; ++rank) {
      Seconds more;
      for (const int stage : stages_of_rank(with.schedule, rank)) {
        const auto n = static_cast<std::size_t>(stage);
        more += with.costs.stages[n].optimizer - without.costs.stages[n].optimizer;
      }
      CHECK(more.value == Approx(0.02));
    }
  }
}
