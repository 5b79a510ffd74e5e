#include "common/cost/costs.hpp"

#include <algorithm>
#include <random>

#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

ComputeCost random_block(std::mt19937& random) {
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  ComputeCost block;
  block.forward = {static_cast<double>(pick(0, 9))};
  block.input_gradient = {static_cast<double>(pick(0, 9))};
  block.weight_gradient = {static_cast<double>(pick(0, 9))};
  block.optimizer = {static_cast<double>(pick(0, 9))};
  block.parameters = pick(0, 99);
  block.parameter_bytes = {pick(0, 99)};
  block.gradient_bytes = {pick(0, 99)};
  block.optimizer_bytes = {pick(0, 99)};
  block.kept_bytes = {pick(0, 50)};
  block.kept_for_weight_bytes = {pick(0, static_cast<int>(block.kept_bytes.value))};
  block.forward_workspace_bytes = {pick(0, 50)};
  block.input_gradient_workspace_bytes = {pick(0, 50)};
  block.weight_gradient_workspace_bytes = {pick(0, 50)};
  return block;
}

}  // namespace

TEST_CASE("blocks in sequence: sums, and the worst moment of walking over them one by one") {
  std::mt19937 random(1);
  for (int round = 0; round < plumb::testing::cases(500); ++round) {
    std::vector<ComputeCost> blocks(static_cast<std::size_t>(random() % 6 + 1));
    for (ComputeCost& block : blocks) block = random_block(random);
    // What each block holds at the moment, and the largest total seen.
    std::vector<std::int64_t> held(blocks.size(), 0);
    const auto total = [&] {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : held) sum += bytes;
      return sum;
    };
    const auto run = [&](std::size_t i, std::int64_t workspace, std::int64_t before, std::int64_t after) {
      held[i] = before;
      const std::int64_t worst = total() + workspace;
      held[i] = after;
      return worst;
    };
    std::int64_t worst_f = 0, worst_i = 0, worst_w = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t kept = blocks[i].kept_bytes.value;
      worst_f = std::max(worst_f, run(i, blocks[i].forward_workspace_bytes.value, kept, kept));
    }
    const std::int64_t kept = total();
    for (std::size_t i = blocks.size(); i-- > 0;) {
      worst_i = std::max(worst_i, run(i, blocks[i].input_gradient_workspace_bytes.value, blocks[i].kept_bytes.value,
                                      blocks[i].kept_for_weight_bytes.value));
    }
    const std::int64_t for_weight = total();
    for (std::size_t i = blocks.size(); i-- > 0;) {
      worst_w = std::max(
          worst_w, run(i, blocks[i].weight_gradient_workspace_bytes.value, blocks[i].kept_for_weight_bytes.value, 0));
    }
    const ComputeCost sum = in_sequence(blocks);
    CHECK(sum.kept_bytes.value == kept);
    CHECK(sum.kept_for_weight_bytes.value == for_weight);
    CHECK((sum.kept_bytes + sum.forward_workspace_bytes).value == worst_f);
    CHECK((sum.kept_bytes + sum.input_gradient_workspace_bytes).value == worst_i);
    CHECK((sum.kept_for_weight_bytes + sum.weight_gradient_workspace_bytes).value == worst_w);
    std::int64_t parameters = 0;
    for (const ComputeCost& block : blocks) parameters += block.parameters;
    CHECK(sum.parameters == parameters);
    for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient,
                            &ComputeCost::optimizer}) {
      double seconds = 0;
      for (const ComputeCost& block : blocks) seconds += (block.*time).value;
      CHECK((sum.*time).value == seconds);
    }
    for (const auto state :
         {&ComputeCost::parameter_bytes, &ComputeCost::gradient_bytes, &ComputeCost::optimizer_bytes}) {
      std::int64_t bytes = 0;
      for (const ComputeCost& block : blocks) bytes += (block.*state).value;
      CHECK((sum.*state).value == bytes);
    }
    if (blocks.size() == 1) CHECK(sum == blocks[0]);
  }
  CHECK(in_sequence({}) == ComputeCost{});
}

// By hand: a layer with an input of 10 that keeps 40 until I and 15 until W; F needs 7 more, I 9, W 3.
TEST_CASE("a layer that is redone inside its backward keeps its input, and I has all that F made") {
  const ComputeCost layer{.forward = {2},
                          .input_gradient = {3},
                          .weight_gradient = {5},
                          .kept_bytes = {40},
                          .kept_for_weight_bytes = {15},
                          .forward_workspace_bytes = {7},
                          .input_gradient_workspace_bytes = {9},
                          .weight_gradient_workspace_bytes = {3},
                          .kept_if_redone = {{10}}};
  const ComputeCost redone = redone_in_backward(layer);
  CHECK(redone.forward == layer.forward);
  CHECK(redone.input_gradient.value == 2 + 3);
  CHECK(redone.weight_gradient == layer.weight_gradient);
  CHECK(redone.kept_bytes.value == 10);
  // F still makes all 40 of them, of which it has kept 10 at its end.
  CHECK(redone.forward_workspace_bytes.value == 40 + 7 - 10);
  // I has them all again, 10 of them kept since then.
  CHECK(redone.input_gradient_workspace_bytes.value == 40 + 9 - 10);
  CHECK(redone.kept_for_weight_bytes.value == 15);
  CHECK(redone.weight_gradient_workspace_bytes.value == 3);
  CHECK(redone.slice_bytes.empty());
}

// The same in two equal slices, of which the second hands nothing on.
TEST_CASE("each of equal recomputed slices saves its own bytes") {
  const ComputeCost redone = redone_in_backward({.kept_bytes = {40},
                                                 .kept_for_weight_bytes = {15},
                                                 .forward_workspace_bytes = {7},
                                                 .input_gradient_workspace_bytes = {9},
                                                 .weight_gradient_workspace_bytes = {3},
                                                 .kept_if_redone = {{12}, {8}}});
  for (const auto& [slice, kept] : {std::pair{0, 12}, std::pair{1, 8}}) {
    const SliceBytes bytes = bytes_of(redone, slice);
    CHECK(bytes.kept.value == kept);
    CHECK(bytes.forward_workspace.value == 40 + 7 - kept);
    CHECK(bytes.input_gradient_workspace.value == 40 + 9 - kept);
    CHECK((bytes.kept_for_weight.value == 15 && bytes.weight_gradient_workspace.value == 3));
  }
  CHECK(redone.kept_bytes.value == 10);
}

// By hand: two layers that keep 40 and 20; slices of the first have a gradient of 6, of the second one of 5. The last
// slice leaves them both.
TEST_CASE("gradients that slices hand back are there from the backward that makes them to the one that takes them") {
  const auto layer = [](std::int64_t kept, std::int64_t gradient) {
    return handing_on({.kept_bytes = {kept}, .input_gradient_workspace_bytes = {3}},
                      {{.all = {gradient}, .beside = {}, .gradients_left = {}},
                       {.all = {}, .beside = {}, .gradients_left = {gradient}}});
  };
  const ComputeCost stage = in_sequence({layer(40, 6), layer(20, 5)});
  const SliceBytes first = bytes_of(stage, 0);
  CHECK((first.gradients_taken.value == 11 && first.gradients_left.value == 0));
  CHECK(backward_workspace(first).value == 3);  // of the second layer, with all that is kept
  const SliceBytes last = bytes_of(stage, 1);
  CHECK((last.gradients_taken.value == 0 && last.gradients_left.value == 11));
  CHECK(backward_workspace(last).value == 3 + 5);  // it makes its gradient before it frees what it keeps
  // With little kept the first layer, which comes last, has the most: 10 kept, both gradients.
  CHECK(backward_workspace(bytes_of(in_sequence({layer(10, 6), layer(4, 5)}), 1)).value == 10 - 14 + 3 + 5 + 6);
  CHECK(as_largest_slice(stage).kept_bytes.value == 60 + 11);
  CHECK(as_smallest_slice(stage).kept_bytes.value == 60);
}

TEST_CASE("a stage costs what its blocks do, the first with the embedding and the last with the head") {
  std::mt19937 random(2);
  std::vector<ComputeCost> blocks(5);  // embedding, three layers, head
  for (ComputeCost& block : blocks) block = random_block(random);
  const Split split{{1, 2}};
  CHECK(stage_cost(blocks, split, 0) == in_sequence({blocks[0], blocks[1]}));
  CHECK(stage_cost(blocks, split, 1) == in_sequence({blocks[2], blocks[3], blocks[4]}));
}

TEST_CASE("even costs divide a rank's share by its chunks") {
  const PipelineCosts costs =
      even_costs(8, {.forward = {4}, .input_gradient = {6}, .weight_gradient = {2}, .hop = {0.5}, .chunks = 4});
  REQUIRE(costs.stages.size() == 8);
  CHECK(costs.stages[7].forward.value == 1);
  CHECK(costs.stages[7].input_gradient.value == 1.5);
  CHECK(costs.stages[7].weight_gradient.value == 0.5);
  CHECK(transfer_time(transfer_between(costs, 0, 7), costs.boundary_bytes).value == 0.5);
}

TEST_CASE("a transfer takes latency + bytes / bandwidth, and an empty one only latency") {
  CHECK(transfer_time({.latency = {1}, .bandwidth = {4}}, Bytes{8}).value == 3);
  CHECK(transfer_time({.latency = {1}, .bandwidth = {}}, Bytes{0}).value == 1);
}
