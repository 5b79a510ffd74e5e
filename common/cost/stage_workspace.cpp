#include "common/cost/stage_workspace.hpp"

#include <algorithm>

#include "common/split/weighed_chain.hpp"

namespace plumb {

BlockWorkspace block_workspace(const ComputeCost& block) {
  return {.forward = block.forward_workspace_bytes,
          .input_gradient = block.input_gradient_workspace_bytes,
          .weight_gradient = block.weight_gradient_workspace_bytes,
          .kept_for_weight = block.kept_for_weight_bytes};
}

BlockWorkspace in_full_backward(const ComputeCost& block) {
  return {.forward = block.forward_workspace_bytes, .input_gradient = backward_workspace(block)};
}

Bytes most_kept(const ComputeCost& block, BackwardIn actions) {
  return actions == BackwardIn::one ? block.kept_bytes : std::max(block.kept_bytes, block.kept_for_weight_bytes);
}

struct StageWorkspaces::Chain {
  Chain(const std::vector<ComputeCost>& blocks, BackwardIn actions)
      : problem(problem_of(blocks, actions)), weighed(problem) {}

  static SplitProblem problem_of(const std::vector<ComputeCost>& blocks, BackwardIn actions) {
    SplitProblem one_stage{.block_times = std::vector<Seconds>(blocks.size()),
                           .block_fixed_bytes = std::vector<Bytes>(blocks.size()),
                           .block_kept_bytes = {},
                           .rank_of_stage = {0},
                           .moments = {{{1}}},
                           .memory_per_rank = {}};
    for (const ComputeCost& block : blocks) {
      one_stage.block_kept_bytes.push_back(block.kept_bytes);
      one_stage.block_workspaces.push_back(actions == BackwardIn::one ? in_full_backward(block)
                                                                      : block_workspace(block));
    }
    return one_stage;
  }

  SplitProblem problem;
  WeighedChain weighed;
};

StageWorkspaces::StageWorkspaces(const std::vector<ComputeCost>& blocks, BackwardIn actions)
    : chain_(std::make_shared<const Chain>(blocks, actions)) {}

Bytes StageWorkspaces::of(int first, int last) const { return {chain_->weighed.workspace(first, last)}; }

Bytes StageWorkspaces::with_kept(int first, int last) const {
  return {chain_->weighed.kept_bytes(first, last) + chain_->weighed.workspace(first, last)};
}

}  // namespace plumb
