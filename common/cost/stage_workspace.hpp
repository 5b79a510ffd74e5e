// What a stage needs while it works on a microbatch, beside what it keeps of it: of any run of a chain's blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/cost/compute_cost.hpp"
#include "common/split/split.hpp"

namespace plumb {

// What splits weigh of a block's.
[[nodiscard]] BlockWorkspace block_workspace(const ComputeCost& block);

// Of a block whose backward is one action: nothing waits for W while the blocks before it go back.
[[nodiscard]] BlockWorkspace in_full_backward(const ComputeCost& block);

// I and W of a stage: block by block in one action, or I of all blocks and later W of all.
enum class BackwardIn : std::uint8_t { one, two };

// The most that a block keeps of a microbatch from F to the end of its backward: what waits for W may be more than what
// F kept.
[[nodiscard]] Bytes most_kept(const ComputeCost& block, BackwardIn actions);

class StageWorkspaces {
 public:
  // Throws InputError (where = "split") for fewer than three blocks: an embedding, layers and a head.
  StageWorkspaces(const std::vector<ComputeCost>& blocks, BackwardIn actions);

  // Of a stage of the blocks [first, last), on top of their kept_bytes: the worst moment of its F, I and W, as
  // in_sequence counts it.
  [[nodiscard]] Bytes of(int first, int last) const;
  // The same where nothing is kept until the stage works and redoes F.
  [[nodiscard]] Bytes with_kept(int first, int last) const;

 private:
  struct Chain;
  std::shared_ptr<const Chain> chain_;
};

}  // namespace plumb
