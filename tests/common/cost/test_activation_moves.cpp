// Blocks whose activations stand on the host between F and I or B: times and bytes of a small stage by hand, and of any
// blocks against three streams.
#include <random>

#include "common/cost/moves_in_sequence.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// Bytes that F keeps, that W needs, and the workspaces of F, I and W.
struct BytesOfBlock {
  std::int64_t kept = 0;
  std::int64_t for_weight = 0;
  std::int64_t forward = 0;
  std::int64_t input = 0;
  std::int64_t weight = 0;
};

ComputeCost block_on_host(Seconds forward, Seconds input, Seconds weight, Seconds copying, const BytesOfBlock& bytes,
                          bool beside) {
  const ComputeCost here{.forward = forward,
                         .input_gradient = input,
                         .weight_gradient = weight,
                         .kept_bytes = {bytes.kept},
                         .kept_for_weight_bytes = {bytes.for_weight},
                         .forward_workspace_bytes = {bytes.forward},
                         .input_gradient_workspace_bytes = {bytes.input},
                         .weight_gradient_workspace_bytes = {bytes.weight}};
  return on_host_between_actions(here, copying, beside);
}

std::vector<ComputeCost> two_blocks(bool beside) {
  return {block_on_host({3}, {4}, {2}, {5}, {10, 4, 7, 8, 9}, beside),
          block_on_host({2}, {1}, {3}, {1}, {6, 2, 3, 5, 1}, beside)};
}

// One stream computes, one moves weights and gradients, one copies activations; all of a block's before the next
// begins.
double three_streams(const std::vector<double>& compute, const std::vector<double>& gather,
                     const std::vector<double>& reduce, const std::vector<double>& up,
                     const std::vector<double>& down) {
  const auto at = [](const std::vector<double>& all, std::size_t i) { return i < all.size() ? all[i] : 0.0; };
  double now = std::max(at(gather, 0), at(up, 0));
  for (std::size_t i = 0; i < compute.size(); ++i) {
    const double moved = now + at(gather, i + 1) + at(reduce, i - 1);
    const double copied = now + at(up, i + 1) + at(down, i - 1);
    now = std::max({now + compute[i], moved, copied});
  }
  return now + at(reduce, compute.size() - 1) + at(down, compute.size() - 1);
}

}  // namespace

// F: 3 + max(2, 5) + 1 = 9. I: 1 + max(1, 5) + 4 = 10. W: 2 + 3 = 5. B: 1 + max(4, 5) + 6 = 12.
TEST_CASE("times of two blocks on the host by hand, copied beside their neighbours") {
  const ComputeCost stage = in_sequence(two_blocks(true));
  CHECK(stage.forward == Seconds{9});
  CHECK(stage.input_gradient == Seconds{10});
  CHECK(stage.weight_gradient == Seconds{5});
  CHECK(backward_time(stage) == Seconds{12});
  CHECK(stage.activation_moves.kept == Bytes{16});
  CHECK(stage.activation_moves.copying == Seconds{6});
  CHECK(stage.activation_moves.waits == HostWaits{{4}, {5}, {2}});
  CHECK(stage.data_moves.waits == DataWaits{});
}

// F: block 0 10 + 7; block 1 6 + 3 with the 10 that go down: 19. I: block 1 6 + 5 with the 10 that come: 21; block 0
// 10 + 8 with the 2 that wait for W: 20. W: of 6, block 1 6 + 1, then block 0 4 + 9: 13. B: 21, then max(10 + 8, 4 +
// 9).
TEST_CASE("bytes of two blocks on the host by hand: two blocks' worth while they are on their way") {
  const ComputeCost stage = in_sequence(two_blocks(true));
  CHECK(stage.kept_bytes == Bytes{0});
  CHECK(stage.kept_for_weight_bytes == Bytes{6});
  CHECK(stage.forward_workspace_bytes == Bytes{19});
  CHECK(stage.input_gradient_workspace_bytes == Bytes{21});
  CHECK(stage.weight_gradient_workspace_bytes == Bytes{13 - 6});
  CHECK(backward_workspace(stage) == Bytes{21});
}

// A core that copies and computes does one after the other, and has one block's worth at a time.
TEST_CASE("two blocks on the host by hand, where nothing goes beside the computing") {
  const ComputeCost stage = in_sequence(two_blocks(false));
  CHECK(stage.forward == Seconds{3 + 5 + 2 + 1});
  CHECK(stage.input_gradient == Seconds{4 + 5 + 1 + 1});
  CHECK(backward_time(stage) == Seconds{6 + 5 + 4 + 1});
  CHECK(stage.activation_moves.waits == HostWaits{{6}, {6}, {6}});
  CHECK(stage.forward_workspace_bytes == Bytes{10 + 7});
  CHECK(stage.input_gradient_workspace_bytes == Bytes{2 + 10 + 8});
  CHECK(backward_workspace(stage) == Bytes{10 + 8});
}

TEST_CASE("any blocks take as long as three streams that go one block ahead") {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> time(0, 4);
  for (int round = 0; round < 300; ++round) {
    const bool gathers = round % 3 > 0;
    std::vector<ComputeCost> blocks;
    std::vector<double> forward;
    std::vector<double> input;
    std::vector<double> both;
    std::vector<double> gather;
    std::vector<double> reduce;
    std::vector<double> copies;
    for (int i = 0; i < 1 + round % 7; ++i) {
      blocks.push_back(block_on_host({time(random)}, {time(random)}, {time(random)}, {time(random)}, {}, true));
      ComputeCost& block = blocks.back();
      block.data_moves.beside = gathers;
      block.data_moves.gathering = {gathers ? time(random) : 0};
      block.data_moves.reducing = {gathers ? time(random) : 0};
      forward.push_back(block.forward.value);
      gather.push_back(block.data_moves.gathering.value);
      copies.push_back(block.activation_moves.copying.value);
      input.insert(input.begin(), block.input_gradient.value);
      both.insert(both.begin(), backward_time(block).value);
      reduce.insert(reduce.begin(), block.data_moves.reducing.value);
    }
    const std::vector<double> gather_back(gather.rbegin(), gather.rend());
    const std::vector<double> copies_back(copies.rbegin(), copies.rend());
    const ComputeCost stage = in_sequence(blocks);
    CHECK(stage.forward.value == Approx(three_streams(forward, gather, {}, {}, copies)));
    CHECK(stage.input_gradient.value == Approx(three_streams(input, gather_back, {}, copies_back, {})));
    CHECK(backward_time(stage).value == Approx(three_streams(both, gather_back, reduce, copies_back, {})));
    CHECK(reduced_at(blocks, false).back().value == Approx(backward_time(stage).value));
    const HostWaits& waits = stage.activation_moves.waits;
    CHECK(std::min({waits.forward, waits.input_gradient, waits.backward}) >= Seconds{-1e-12});
  }
}
