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

}  // namespace plumb::exec
