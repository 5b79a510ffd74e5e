// What the actions of a plan's stages do: the programs of their blocks, one after the other.
#pragma once

#include <map>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/program/block_program.hpp"
#include "common/schedule/action.hpp"

namespace plumb {

// Phases of one block that an action goes through, together where its backward is one.
struct BlockPass {
  const BlockProgram* program = nullptr;
  std::vector<Phase> phases = {};
};

class StagePrograms {
 public:
  // Of one slice of a microbatch. Equal blocks have one program.
  StagePrograms(const Plan& plan, Slice slice);

  // Of F, R, I, W or B: forward in the order of the blocks, backward against it; a forward that is redone inside the
  // backward stands before its block's I. Valid as long as this is.
  [[nodiscard]] std::vector<BlockPass> passes(int stage, ActionKind kind) const;
  // Blocks of the stage, in their order.
  [[nodiscard]] std::vector<const BlockProgram*> blocks(int stage) const;

 private:
  const Plan& plan_;
  std::vector<bool> redone_;                            // by layer
  std::vector<std::size_t> first_;                      // of each block the first like it
  std::map<int, std::vector<BlockProgram>> of_degree_;  // by data degree of the stage; of the first of equal blocks
  std::vector<BlockProgram> of_parts_;                  // of a divided vocabulary: embedding, head
};

}  // namespace plumb
