// What blocks in sequence wait for weights and for reduced gradients, on a small case by hand, and against a simulation
// of two streams.
#include "common/cost/moves_in_sequence.hpp"

#include <random>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

ComputeCost block(double forward, double input, double weight, double hidden, double gathering, double reducing) {
  ComputeCost cost{
      .forward = {forward}, .input_gradient = {input}, .weight_gradient = {weight}, .hidden_in_backward = {hidden}};
  cost.data_moves.beside = true;
  cost.data_moves.gathering = {gathering};
  cost.data_moves.reducing = {reducing};
  return cost;
}

// Computing and one stream of moves: a move may start when the one before it has ended and the computing before which
// it was issued begins; a block computes when its own weights are there. Nothing goes on to the next block before all
// that ran beside this one has ended: one block ahead.
double simulated(const std::vector<double>& compute, const std::vector<double>& gather,
                 const std::vector<double>& reduce) {
  double now = gather.empty() ? 0 : gather.front();
  for (std::size_t i = 0; i < compute.size(); ++i) {
    double moved = now;
    if (i + 1 < gather.size()) moved += gather[i + 1];
    if (i > 0 && !reduce.empty()) moved += reduce[i - 1];
    now = std::max(now + compute[i], moved);
  }
  return now + (reduce.empty() ? 0 : reduce.back());
}

}  // namespace

// F: 2 + max(3, 4) + max(1, 1) + 5 = 12. I: 1 + max(2, 4) + max(6, 2) + 1 = 12. W: max(1, 0) + max(2, 1) + max(3, 5) +
// 3 = 11. B, of 2+1, 6+2−1 and 1+3 seconds: 1 + max(3, 4 + 0) + max(7, 2 + 1) + max(4, 0 + 5) + 3 = 20.
TEST_CASE("three blocks by hand") {
  const std::vector<ComputeCost> blocks{block(3, 1, 3, 0, 2, 3), block(1, 6, 2, 1, 4, 5), block(5, 2, 1, 0, 1, 1)};
  const ComputeCost stage = in_sequence(blocks);
  CHECK(stage.forward.value == 12);
  CHECK(stage.input_gradient.value == 12);
  CHECK(stage.weight_gradient.value == 11);
  CHECK(backward_time(stage).value == 20);
  CHECK(stage.data_moves.waits.forward.value == 12 - 9);
  CHECK(stage.data_moves.waits.input_gradient.value == 12 - 9);
  CHECK(stage.data_moves.waits.weight_gradient.value == 11 - 6);
  CHECK(stage.data_moves.waits.backward.value == 20 - 14);
  CHECK(stage.data_moves.gathering.value == 7);
  CHECK(stage.data_moves.reducing.value == 9);
}

// The same three: in B block 2's gradients at 5 + 2 + 1 = 8, block 1's at 12 + 5 = 17, block 0's with its end; in W at
// 1 + 1, 3 + 5 and 11.
TEST_CASE("when three blocks are reduced, by hand") {
  const std::vector<ComputeCost> blocks{block(3, 1, 3, 0, 2, 3), block(1, 6, 2, 1, 4, 5), block(5, 2, 1, 0, 1, 1)};
  CHECK(reduced_at(blocks, false) == std::vector<Seconds>{{8}, {17}, {20}});
  CHECK(reduced_at(blocks, true) == std::vector<Seconds>{{2}, {8}, {11}});
}

namespace {

std::vector<ComputeCost> ahead(std::vector<ComputeCost> blocks, int prefetch) {
  for (ComputeCost& each : blocks) each.data_moves.prefetch = prefetch;
  return blocks;
}

}  // namespace

// Blocks 2, 1, 0 in I, W and B. Two ahead, F: gathered at 3, 5 and 6; 3 + 4 + 1 + 1. I: gathered at 1, 3 and 6; 6 + 1.
// W: 1 + max(1, 2) + max(0, 2) + 1. B: gathered as in I; block 2 is reduced at 8, before block 0 begins, the others at
// 10 and 11.
TEST_CASE("three blocks by hand that are gathered two ahead") {
  const std::vector<ComputeCost> blocks{block(4, 1, 0, 0, 3, 1), block(1, 0, 1, 0, 2, 2), block(1, 3, 1, 0, 1, 2)};
  const ComputeCost one = in_sequence(blocks);
  const ComputeCost two = in_sequence(ahead(blocks, 2));
  CHECK(one.forward.value == 3 + 4 + 1 + 1);
  CHECK(two.forward.value == 9);
  CHECK(one.input_gradient.value == 1 + 3 + 3 + 1);
  CHECK(two.input_gradient.value == 7);
  CHECK(two.weight_gradient.value == 6);
  CHECK(backward_time(one).value == 1 + 4 + (3 + 2) + 2 + 1);
  CHECK(backward_time(two).value == 11);
  CHECK(two.data_moves.waits.backward.value == 11 - 6);
  CHECK(two.data_moves.prefetch == 2);
  CHECK(reduced_at(ahead(blocks, 2), false) == std::vector<Seconds>{{8}, {10}, {11}});
}

TEST_CASE("any blocks take as long as two streams that go one block ahead") {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> time(0, 4);
  for (int round = 0; round < 300; ++round) {
    std::vector<ComputeCost> blocks;
    std::vector<double> forward;
    std::vector<double> gather;
    const int count = 1 + round % 7;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(block(time(random), time(random), time(random), 0, time(random), time(random)));
      blocks.back().hidden_in_backward = blocks.back().weight_gradient * 0.5;
      forward.push_back(blocks.back().forward.value);
      gather.push_back(blocks.back().data_moves.gathering.value);
    }
    std::vector<double> input;
    std::vector<double> weight;
    std::vector<double> both;
    std::vector<double> gather_back(gather.rbegin(), gather.rend());
    std::vector<double> reduce;
    for (auto each = blocks.rbegin(); each != blocks.rend(); ++each) {
      input.push_back(each->input_gradient.value);
      weight.push_back(each->weight_gradient.value);
      both.push_back(backward_time(*each).value);
      reduce.push_back(each->data_moves.reducing.value);
    }
    const ComputeCost stage = in_sequence(blocks);
    CHECK(stage.forward.value == Approx(simulated(forward, gather, {})));
    CHECK(stage.input_gradient.value == Approx(simulated(input, gather_back, {})));
    CHECK(stage.weight_gradient.value == Approx(simulated(weight, {}, reduce)));
    CHECK(backward_time(stage).value == Approx(simulated(both, gather_back, reduce)));
    CHECK(reduced_at(blocks, false).back().value == Approx(backward_time(stage).value));
    CHECK(reduced_at(blocks, true).back().value == Approx(stage.weight_gradient.value));
    CHECK(stage.hidden_in_backward.value >= 0);
  }
}

// Of ZeRO++: F gathers as long as before, R, and I or B, as long as the second copy takes.
TEST_CASE("blocks with a second copy gather from it in R and in the backward") {
  std::mt19937 random(6);
  std::uniform_real_distribution<double> time(0, 4);
  for (int round = 0; round < 100; ++round) {
    std::vector<ComputeCost> blocks;
    std::vector<double> forward;
    std::vector<double> input;
    std::vector<double> gather;
    std::vector<double> again;
    for (int i = 0; i < 1 + round % 5; ++i) {
      blocks.push_back(block(time(random), time(random), time(random), 0, time(random), 0));
      blocks.back().data_moves.gathering_again = Seconds{time(random)};
      forward.push_back(blocks.back().forward.value);
      input.insert(input.begin(), blocks.back().input_gradient.value);
      gather.push_back(blocks.back().data_moves.gathering.value);
      again.push_back(blocks.back().data_moves.gathering_again->value);
    }
    const ComputeCost stage = in_sequence(blocks);
    const std::vector<double> back(again.rbegin(), again.rend());
    CHECK(stage.forward.value == Approx(simulated(forward, gather, {})));
    CHECK(recompute_time(stage.forward, stage.data_moves).value == Approx(simulated(forward, again, {})));
    CHECK(stage.input_gradient.value == Approx(simulated(input, back, {})));
    CHECK(microbatch_time(stage, true).value ==
          Approx(stage.forward.value + recompute_time(stage.forward, stage.data_moves).value +
                 backward_time(stage).value));
  }
}

// Blocks need 10, 20, 40 bytes while they run, nothing is kept; two are there at a time, and gradients of two.
TEST_CASE("a block needs its neighbours' weights and gradients beside its own") {
  std::vector<ComputeCost> blocks(3);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t own = 10 << i;
    blocks[i].forward_workspace_bytes = {own};
    blocks[i].input_gradient_workspace_bytes = {own};
    blocks[i].weight_gradient_workspace_bytes = {own};
    blocks[i].data_moves = {.gathered = {100 << i}, .reduced = {1000 << i}, .beside = true};
  }
  const ComputeCost stage = in_sequence(blocks);
  CHECK(stage.forward_workspace_bytes == Bytes{20 + 400});           // block 1, and 2's weights
  CHECK(stage.input_gradient_workspace_bytes == Bytes{40 + 200});    // block 2, and 1's
  CHECK(stage.weight_gradient_workspace_bytes == Bytes{20 + 4000});  // block 1, and 2's gradients
  CHECK(backward_workspace(stage) == Bytes{20 + 100 + 4000});        // block 1, 0's weights and 2's gradients
  for (ComputeCost& each : blocks) {
    each.data_moves.quantised = {.forward = {7}, .input_gradient = {70}, .weight_gradient = {700}};
  }
  const ComputeCost quantised = in_sequence(blocks);
  CHECK(quantised.forward_workspace_bytes == Bytes{40});  // the last block, which has nothing beside it; the others 7
  CHECK(quantised.input_gradient_workspace_bytes == Bytes{40 + 70});
  CHECK(quantised.weight_gradient_workspace_bytes == Bytes{20 + 4000 + 700});
  for (ComputeCost& each : blocks) each.data_moves.beside = false;
  CHECK(in_sequence(blocks).forward_workspace_bytes == Bytes{40});
}

// 10, 20, 40 bytes as above. Two ahead are the weights of two others there, and the gradients of one; three ahead of
// two.
TEST_CASE("a block needs the weights of all that are gathered ahead, and the gradients that are under way") {
  std::vector<ComputeCost> blocks(3);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t own = 10 << i;
    blocks[i].forward_workspace_bytes = blocks[i].input_gradient_workspace_bytes = {own};
    blocks[i].weight_gradient_workspace_bytes = {own};
    blocks[i].data_moves = {.gathered = {100 << i}, .reduced = {1000 << i}, .beside = true};
  }
  const ComputeCost two = in_sequence(ahead(blocks, 2));
  CHECK(two.forward_workspace_bytes == Bytes{10 + 200 + 400});         // block 0
  CHECK(two.input_gradient_workspace_bytes == Bytes{40 + 200 + 100});  // block 2
  CHECK(two.weight_gradient_workspace_bytes == Bytes{20 + 4000});      // block 1
  CHECK(backward_workspace(two) == Bytes{20 + 100 + 4000});
  const ComputeCost three = in_sequence(ahead(blocks, 3));
  CHECK(three.forward_workspace_bytes == two.forward_workspace_bytes);
  CHECK(three.weight_gradient_workspace_bytes == Bytes{10 + 2000 + 4000});  // block 0
  CHECK(backward_workspace(three) == Bytes{10 + 2000 + 4000});
}

// Blocks 1 and 2 are moved as one, in 5 s and 4 s, beside block 0 in 1 s each. F: 1 + max(2, 5) + (3 + 4). I: 5 +
// max(2 + 1, 1) + 3. W: 1 + 1 + max(1, 4) + 1. B: 5 + max(3 + 2, 1) + max(3 + 1, 4) + 1.
TEST_CASE("three blocks by hand of which two are moved as one") {
  std::vector<ComputeCost> blocks{block(2, 3, 1, 0, 1, 1), block(3, 1, 1, 0, 5, 4), block(4, 2, 1, 0, 0, 0)};
  blocks[2].data_moves.joined = true;
  const ComputeCost stage = in_sequence(blocks);
  CHECK(stage.forward.value == 13);
  CHECK(stage.input_gradient.value == 11);
  CHECK(stage.weight_gradient.value == 7);
  CHECK(backward_time(stage).value == 15);
  CHECK(reduced_at(blocks, false) == std::vector<Seconds>{{14}, {15}});
}

// Blocks of 200 and 400 bytes of weights, 2000 and 4000 of gradients, that need 20 and 40 while they run and keep
// nothing, as one: all weights in F and I. In W block 2 has its own gradients, block 1 both. In B block 2 has its own
// and all weights; block 1 in I all weights and block 2's gradients, in W both gradients alone.
TEST_CASE("blocks that are moved as one have all of its weights, and its gradients one after the other") {
  std::vector<ComputeCost> unit(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t own = 20 << i;
    unit[i].forward_workspace_bytes = unit[i].input_gradient_workspace_bytes = {own};
    unit[i].weight_gradient_workspace_bytes = {own};
    unit[i].data_moves = {.gathered = {200 << i}, .reduced = {2000 << i}, .joined = i > 0};
  }
  add_own_moves_as_one(unit);
  CHECK(unit[0].forward_workspace_bytes == Bytes{20 + 600});
  CHECK(unit[1].forward_workspace_bytes == Bytes{40 + 600});
  CHECK(unit[1].input_gradient_workspace_bytes == Bytes{40 + 600});
  CHECK(unit[1].weight_gradient_workspace_bytes == Bytes{40 + 4000});
  CHECK(unit[0].weight_gradient_workspace_bytes == Bytes{20 + 6000});
  CHECK(backward_workspace(unit[1]) == Bytes{40 + 4000 + 600});
  CHECK(backward_workspace(unit[0]) == Bytes{20 + 6000});
  // A block before them, which has theirs on their way in F, and theirs in I and B where it stands behind them.
  std::vector<ComputeCost> stage{ComputeCost{.forward_workspace_bytes = {5}, .weight_gradient_workspace_bytes = {5}}};
  stage.insert(stage.end(), unit.begin(), unit.end());
  stage.front().data_moves = {.gathered = {50}, .reduced = {500}};
  for (ComputeCost& each : stage) each.data_moves.beside = true;
  const std::vector<MovedBytes> moved = moved_for_neighbours(stage);
  CHECK(moved[0].forward == Bytes{600});
  CHECK(moved[1].forward == Bytes{});
  CHECK(moved[2].forward == Bytes{});
  CHECK(moved[1].input_gradient == Bytes{50});
  CHECK(moved[2].input_gradient == Bytes{50});
  CHECK(moved[0].weight_gradient == Bytes{6000});
  CHECK(moved[1].weight_gradient == Bytes{});
}

// Where nothing hides them, waits of I and W are those of B but for the order in which they are added up.
TEST_CASE("a backward hides no less than nothing, whatever its waits round to") {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> seconds(0, 1e-3);
  for (int round = 0; round < 1000; ++round) {
    std::vector<ComputeCost> blocks(4);
    for (ComputeCost& each : blocks) {
      each.data_moves = {.beside = true, .gathering = {seconds(random)}, .reducing = {seconds(random)}};
    }
    REQUIRE(in_sequence(blocks).hidden_in_backward >= Seconds{});
  }
}

// Of a block that keeps 50 bytes after F and 30 after I, and needs 5, 8 and 3 while F, I and W compute.
TEST_CASE(
    "a block's own weights are whole in F and I, its gradients in W, and what is quantised goes before or behind") {
  const SliceBytes block{.kept = {50},
                         .kept_for_weight = {30},
                         .forward_workspace = {5},
                         .input_gradient_workspace = {8},
                         .weight_gradient_workspace = {3}};
  DataMoves moves{.gathered = {100}, .reduced = {1000}};
  SliceBytes whole = block;
  add_own_moves(whole, moves);
  CHECK(whole.forward_workspace == Bytes{100 + 5});
  CHECK(whole.input_gradient_workspace == Bytes{100 + 8});
  CHECK(whole.weight_gradient_workspace == Bytes{1000 + 3});
  CHECK(backward_workspace(whole) == Bytes{30 + 1000 + 3 - 50});  // W, for which the weights have gone
  moves.quantised = {.forward = {60}, .input_gradient = {70}, .weight_gradient = {40}};
  SliceBytes quantised = block;
  add_own_moves(quantised, moves);
  CHECK(quantised.forward_workspace == Bytes{100 + 60 - 50});  // before F keeps anything
  CHECK(quantised.input_gradient_workspace == Bytes{100 + 70});
  CHECK(quantised.weight_gradient_workspace == Bytes{1000 + 40 - 30});  // behind W, which has let go of it
  moves.quantised = {.forward = {55}, .input_gradient = {8}, .weight_gradient = {33}};
  SliceBytes hidden = block;
  add_own_moves(hidden, moves);
  CHECK(hidden == whole);
  SliceBytes known = block;  // a full backward that was measured
  known.backward_workspace = Bytes{20};
  add_own_moves(known, moves);
  CHECK(backward_workspace(known) == Bytes{20 + 1000});
}

TEST_CASE("slices of different lengths each have their own waits") {
  std::vector<ComputeCost> blocks{block(2, 2, 2, 0, 1, 1), block(2, 2, 2, 0, 3, 1)};
  for (ComputeCost& each : blocks) {
    each.slices = {{.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}},
                   {.forward = {3}, .input_gradient = {3}, .weight_gradient = {3}}};
  }
  const ComputeCost stage = in_sequence(blocks);
  REQUIRE(stage.slices.size() == 2);
  CHECK(stage.slices[0].forward.value == 1 + 3 + 1);
  CHECK(stage.slices[1].forward.value == 1 + 3 + 3);
  CHECK(stage.forward.value == 6);
  CHECK(backward_time(stage.slices[0]).value == 3 + 2 + 2 + 1);
}
