// The weights of a block of the model, in the order in which its stage has them.
#pragma once

#include <vector>

#include "common/model/model.hpp"
#include "common/model/parameters.hpp"

namespace plumb::exec {

// The number of a model's last block.
[[nodiscard]] inline int head_block(const Model& model) { return static_cast<int>(model.layers.size()) + 1; }

// Of block `block` alone, without adapters; the head of a tied model has a copy of the embedding's table.
[[nodiscard]] std::vector<Parameter> block_parameters(const Model& model, int block);

}  // namespace plumb::exec
