// The weights of a block of the model, in the order in which its stage has them.
#pragma once

#include <optional>
#include <vector>

#include "common/model/lora.hpp"
#include "common/model/model.hpp"
#include "common/model/parameters.hpp"

namespace plumb::exec {

// The number of a model's last block.
[[nodiscard]] inline int head_block(const Model& model) { return static_cast<int>(model.layers.size()) + 1; }

// Of block `block` alone, without adapters; the head of a tied model has a copy of the embedding's table.
[[nodiscard]] std::vector<Parameter> block_parameters(const Model& model, int block);

// Of the whole model, with adapters where there are some, each once: a tied table is the embedding's.
[[nodiscard]] std::vector<Parameter> all_parameters(const Model& model, const std::optional<Lora>& lora);

}  // namespace plumb::exec
