// What the cost of a block is made of: its operations and its parameter tensors, as they are trained.
#pragma once

#include <vector>

#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/placement/placed_block.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

struct BlockShapes {
  std::vector<Operation> operations;
  std::vector<Parameter> parameters;
  PlacedBlock placed = {};           // as the scenario's tensor layout divides it, of its microbatch
  std::vector<Operation> made = {};  // with LoRA: what an action makes, which is more than what is kept of it
};

// Block 0 is the embedding, 1…n the layers, n+1 the head with multi-token prediction. With LoRA as
// common/model/lora.hpp says. Where the pipeline divides the vocabulary, what is no part of that.
[[nodiscard]] BlockShapes shapes_of_block(const Scenario& scenario, std::size_t block, const OperationContext& context);

}  // namespace plumb
