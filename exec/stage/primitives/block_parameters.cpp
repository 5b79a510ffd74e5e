#include "exec/stage/primitives/block_parameters.hpp"

#include <cstddef>
#include <utility>

namespace plumb::exec {

std::vector<Parameter> block_parameters(const Model& model, int block) {
  if (block == 0) {
    return embedding_parameters(model);
  }
  if (block < head_block(model)) {
    return layer_parameters(model, static_cast<std::size_t>(block - 1));
  }
  std::vector<Parameter> parameters = final_norm_parameters(model);
  if (model.tied_embeddings) {
    parameters.push_back(embedding_parameters(model).front());
  }
  for (Parameter& parameter : head_parameters(model)) {
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<Parameter> all_parameters(const Model& model, const std::optional<Lora>& lora) {
  std::vector<Parameter> all;
  const auto add = [&](std::vector<Parameter> block) {
    for (Parameter& parameter : with_adapters(std::move(block), lora)) all.push_back(std::move(parameter));
  };
  add(embedding_parameters(model));
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) add(layer_parameters(model, layer));
  add(final_norm_parameters(model));
  add(head_parameters(model));
  return all;
}

}  // namespace plumb::exec
