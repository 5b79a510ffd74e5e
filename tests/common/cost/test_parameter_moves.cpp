// Blocks whose weights stand on the host between gatherings: times of a small stage by hand, and of any blocks against
// four streams, of which one is the link by which weights and activations come up.
#include <random>

#include "common/cost/moves_in_sequence.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct TimesOfBlock {
  double forward = 0;
  double input = 0;
  double weight = 0;
  double up = 0;         // its weights'
  double gathering = 0;  // behind that
  double reducing = 0;
  double activations = 0;  // each way
};

ComputeCost block_with(const TimesOfBlock& times, bool gathers_beside = true) {
  const double moved = times.up + times.gathering;
  ComputeCost block{.forward = {times.forward}, .input_gradient = {times.input}, .weight_gradient = {times.weight}};
  block.data_moves = {.beside = gathers_beside, .gathering = {moved}, .reducing = {times.reducing}};
  if (!gathers_beside) {
    block.forward += Seconds{moved};
    block.input_gradient += Seconds{moved};
    block.weight_gradient += Seconds{times.reducing};
  }
  block.parameter_moves = {.copying = {times.up}, .beside = true};
  return on_host_between_actions(block, {times.activations}, true);
}

std::vector<ComputeCost> blocks_with(const std::vector<TimesOfBlock>& all, bool gathers_beside = true) {
  std::vector<ComputeCost> blocks;
  for (const TimesOfBlock& times : all) blocks.push_back(block_with(times, gathers_beside));
  return blocks;
}

enum class ActionOf : std::uint8_t { forward, input, both };

// What goes down has a link of its own; what comes up goes one after the other, weights first. Of a list in the order
// of the action.
double four_streams(const std::vector<TimesOfBlock>& order, ActionOf of_kind, bool ahead) {
  const bool back = of_kind != ActionOf::forward;
  const auto at = [&](std::size_t i) { return i < order.size() ? order[i] : TimesOfBlock{}; };
  const auto reducing = [&](std::size_t i) { return of_kind == ActionOf::both ? at(i).reducing : 0.0; };
  double now = 0;
  if (ahead) now = std::max(at(0).up + at(0).gathering, back ? at(0).up + at(0).activations : 0.0);
  if (!ahead && back) now = at(0).activations;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const TimesOfBlock& own = order[i];
    const double computing = of_kind == ActionOf::forward ? own.forward
                             : of_kind == ActionOf::input ? own.input
                                                          : own.input + own.weight;
    const double link = now + (ahead ? at(i + 1).up : own.up);  // is free of weights from then on
    const double activations = back ? link + at(i + 1).activations : now + at(i - 1).activations;
    if (ahead) {
      now = std::max({now + computing, link + at(i + 1).gathering + reducing(i - 1), activations});
    } else {
      now = std::max(link + own.gathering + computing + reducing(i), activations);
    }
  }
  if (ahead) now += reducing(order.size() - 1);
  return back ? now : now + order.back().activations;
}

}  // namespace

// F: 2 + max(3, 3) + max(2, 5) + 1 = 11. I: max(3, 2 + 1) + max(1, 2, 1 + 5) + 4 = 13. B: 3 + max(4, 2, 6) +
// max(6, 1) + 1 = 16.
TEST_CASE("times of two blocks whose weights come up before they are gathered, by hand") {
  const ComputeCost stage = in_sequence(blocks_with({{3, 4, 2, 1, 1, 1, 5}, {2, 1, 3, 2, 1, 1, 1}}));
  CHECK(stage.forward == Seconds{11});
  CHECK(stage.input_gradient == Seconds{13});
  CHECK(backward_time(stage) == Seconds{16});
  CHECK(stage.parameter_moves.copying == Seconds{3});
}

TEST_CASE("any blocks take as long as four streams, wherever gatherings go") {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> time(0, 4);
  for (int round = 0; round < 300; ++round) {
    const bool ahead = round % 2 == 0;
    std::vector<TimesOfBlock> times(static_cast<std::size_t>(1 + round % 7));
    for (TimesOfBlock& of : times) {
      of = {time(random), time(random), time(random), time(random), time(random), time(random), time(random)};
    }
    const std::vector<TimesOfBlock> back(times.rbegin(), times.rend());
    const std::vector<ComputeCost> blocks = blocks_with(times, ahead);
    const ComputeCost stage = in_sequence(blocks);
    CAPTURE(round, ahead);
    CHECK(stage.forward.value == Approx(four_streams(times, ActionOf::forward, ahead)));
    CHECK(stage.input_gradient.value == Approx(four_streams(back, ActionOf::input, ahead)));
    CHECK(backward_time(stage).value == Approx(four_streams(back, ActionOf::both, ahead)));
    if (ahead) CHECK(reduced_at(blocks, false).back().value == Approx(backward_time(stage).value));
  }
}

// A layer that is redone gathers once, and its weights come up once, also where a core copies them.
TEST_CASE("a layer that is redone in its backward brings its weights up once for both") {
  ComputeCost layer{.forward = {5}, .input_gradient = {7}, .kept_if_redone = {Bytes{1}}};
  layer.parameter_moves = {.up = {8}, .copying = {2}, .beside = false};  // in both times
  CHECK(redone_in_backward(layer).input_gradient == Seconds{7 + 5 - 2});
}
