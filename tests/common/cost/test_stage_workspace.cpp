// What a stage needs while it works, against the blocks in sequence.
#include "common/cost/stage_workspace.hpp"

#include <algorithm>
#include <random>

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("the workspace of a run of blocks is the largest that in_sequence counts beyond saved values") {
  std::mt19937 random(7);
  const auto bytes = [&](int most) { return Bytes{std::uniform_int_distribution<int>(0, most)(random)}; };
  for (int round = 0; round < 50; ++round) {
    std::vector<ComputeCost> blocks(9);
    for (ComputeCost& block : blocks) {
      block.kept_bytes = bytes(40);
      block.kept_for_weight_bytes = bytes(static_cast<int>(block.kept_bytes.value));
      block.forward_workspace_bytes = bytes(60);
      block.input_gradient_workspace_bytes = bytes(60);
      block.weight_gradient_workspace_bytes = bytes(60);
    }
    const StageWorkspaces workspaces(blocks, BackwardIn::two);
    const StageWorkspaces in_one(blocks, BackwardIn::one);
    for (int first = 0; first < 9; ++first) {
      for (int last = first + 1; last <= 9; ++last) {
        const ComputeCost stage = in_sequence({blocks.begin() + first, blocks.begin() + last});
        const Bytes in_weight = stage.kept_for_weight_bytes + stage.weight_gradient_workspace_bytes - stage.kept_bytes;
        const Bytes worst = std::max({stage.forward_workspace_bytes, stage.input_gradient_workspace_bytes, in_weight});
        CHECK(workspaces.of(first, last) == worst);
        CHECK(workspaces.with_kept(first, last) == worst + stage.kept_bytes);
        // B block by block: of those behind nothing is left, of those before all that F kept.
        Bytes held;
        Bytes most;
        for (int block = first; block < last; ++block) {
          const ComputeCost& own = blocks[static_cast<std::size_t>(block)];
          most = std::max({most, held + own.kept_bytes + own.input_gradient_workspace_bytes,
                           held + own.kept_for_weight_bytes + own.weight_gradient_workspace_bytes});
          held += own.kept_bytes;
        }
        CHECK(backward_workspace(stage) == std::max(most, held) - held);
        CHECK(in_one.of(first, last) == std::max(stage.forward_workspace_bytes, backward_workspace(stage)));
      }
    }
  }
}
