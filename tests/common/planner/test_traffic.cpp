// What a rank receives, against closed forms: 8(P−1)/P·bsh a layer of 1d (arXiv 1909.08053), messages, and a ring's
// 2(P−1)/P of the gradients.
#include "common/planner/traffic.hpp"

#include "common/cost/collective_time.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double bsh = 512.0 * 1024 * 2;  // bytes of a microbatch's hidden states

// Of rank 0: the embedding and four layers; messages come back from stage 1.
double received(const LayoutCase& c) {
  const Plan plan = plumb::testing::plan_of(c);
  const Timeline predicted = predict_by_path(plan);
  return static_cast<double>(predicted.ranks.front().received_bytes.value);
}

double gradients(const LayoutCase& c) {
  return static_cast<double>(plumb::testing::plan_of(c).costs.stages.front().gradient_bytes.value);
}

}  // namespace

TEST_CASE("pipelines receive messages alone, and nothing is moved inside their layers") {
  CHECK(received({}) == 16 * bsh);
  for (const StageMoves& moves : tensor_moves(plumb::testing::plan_of({}), {})) CHECK(moves == StageMoves{});
}

TEST_CASE("1d tensor parallelism: eight parts of each layer's hidden states, and two of the embedding's") {
  const double part = 3.0 / 4 * bsh;
  CHECK(received({.tensor = 4}) == 16 * (bsh + (4 * 8 + 2) * part));
  // All of F again, in actions of its own or inside the backward.
  CHECK(received({.tensor = 4, .recompute = "full"}) == 16 * (bsh + (4 * 8 + 2 + 4 * 4 + 2) * part));
  CHECK(received({.tensor = 4, .software = "megatron-2021", .recompute = "full"}) ==
        16 * (bsh + (4 * 8 + 2 + 4 * 4) * part));
}

TEST_CASE("sequence parallelism gathers two more in each backward and sends its part of the tokens") {
  const double part = 3.0 / 4 * bsh;
  const double norms = 2 * 3.0 / 4 * 4 * 2 * 1024 * 4;  // once a step, two of each layer in fp32
  CHECK(received({.tensor = 4, .sequence_parallel = true}) == 16 * (bsh / 4 + (4 * 10 + 2) * part) + norms);
}

TEST_CASE("a message that was scattered over a tensor group is gathered on arrival") {
  const LayoutCase whole{.tensor = 4};
  CHECK(received({.tensor = 4, .software = "{like: plumb, scattered_messages: true}"}) == received(whole));
}

TEST_CASE("traffic is reported by axis, with the time that a rank waits for its tensor group") {
  const LayoutCase c{
      .nodes = 4, .tensor = 4, .data = 4, .software = "{like: megatron-2021, fused_weight_gradient: true}"};
  const Plan plan = plumb::testing::plan_of(c);
  const AxisTraffic axes = predict_by_path(plan).ranks.front().by_axis.value();
  const double part = 3.0 / 4 * bsh;
  // Two all-reduces of each layer and one of the look-up forward, two of each layer back; messages come scattered.
  CHECK(static_cast<double>(axes.tensor.value) == 16 * ((4 * 8 + 2) * part + part));
  CHECK(static_cast<double>(axes.pipeline.value) == 16 * bsh / 4);
  CHECK(static_cast<double>(axes.data.value) == 2.0 * 3 / 4 * gradients(c));
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  const Seconds reduction = collective_time(plan.cluster.machine, Collective::all_reduce, bsh, group);
  CHECK(exposed(axes.tensor_within.value()).value == Approx(16 * (4 * 4 + 1) * reduction.value));
  // Its backward hides what fits behind its matmuls.
  LayoutCase overlapping = c;
  overlapping.software = "{like: megatron-2021, fused_weight_gradient: true, tensor_overlap: true}";
  const AxisTraffic hidden = predict_by_path(plumb::testing::plan_of(overlapping)).ranks.front().by_axis.value();
  CHECK(hidden.tensor == axes.tensor);
  CHECK(hidden.tensor_within->on_its_way.value == Approx(axes.tensor_within->on_its_way.value));
  CHECK(exposed(hidden.tensor_within.value()) < exposed(axes.tensor_within.value()) * 0.9);
  CHECK(exposed(hidden.tensor_within.value()).value >= 16 * (2 * 4 + 1) * reduction.value * (1 - 1e-9));
}

TEST_CASE("data-parallel ranks sum their gradients around a ring") {
  const LayoutCase c{.nodes = 2, .data = 4};
  CHECK(received(c) == 16 * bsh + 2.0 * 3 / 4 * gradients(c));
}

// Both ranks of a pair train stages of the same numbers, on different halves of the batch: sums inside the pipeline.
TEST_CASE("sums of two replicas of a pipeline are the pipeline's, with data-parallel ranks data's") {
  Bytes gradients;  // of rank 0's stages, the first of one replica and the last of the other
  const auto axes_of = [&](int data) {
    const Scenario scenario = read_text(
        "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*4\", tied_embeddings: false}\n"
        "training: {sequence: 16, global_batch: 32, microbatch: 1}\ncluster: {machine: dgx-a100, nodes: 1, ranks: " +
        std::to_string(4 * data) + "}\nlayout: {pipeline: 4, data: {degree: " + std::to_string(data) +
        "}}\nschedule: dualpipe\nsplit: uniform\n");
    const Plan plan = make_plan(scenario, only_choice(scenario));
    gradients = plan.costs.stages.front().gradient_bytes + plan.costs.stages.back().gradient_bytes;
    return predict_by_path(plan).ranks.front().by_axis.value();
  };
  // Of each replica half of the microbatches: hidden states of one, their gradients of the other.
  constexpr std::int64_t boundary = 16 * 64 * 2;
  const AxisTraffic alone = axes_of(1);
  CHECK(alone.data == Bytes{});
  CHECK(alone.pipeline == Bytes{32 * boundary} + gradients);  // 2(P−1)/P of what two ranks sum
  const AxisTraffic both = axes_of(2);
  CHECK(both.pipeline == Bytes{16 * boundary});
  CHECK(both.data.value == Approx(2.0 * 3 / 4 * static_cast<double>(gradients.value)).epsilon(1e-4));
}
