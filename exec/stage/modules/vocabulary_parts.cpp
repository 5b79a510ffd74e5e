#include "exec/stage/modules/vocabulary_parts.hpp"

#include <ATen/ATen.h>

#include "exec/stage/tensor/vocabulary.hpp"

namespace plumb::exec {

// Of the looked-up rows of all parts.
Module make_positions(const ModuleContext& context) {
  const Model& model = context.model;
  if (!adds_positions(model)) {
    // Another tensor over the same memory: a block gives up its output's, and must keep its input's.
    return [](const at::Tensor& x, const Pass& /*pass*/) { return x.view(x.sizes()); };
  }
  const WeightPtr positions = context.weights.take("embedding.positions", {model.max_positions, model.hidden});
  return [=](const at::Tensor& x, const Pass& pass) {
    return add_positions(x, positions, pass.slice.first_token, pass.queue);
  };
}

Module make_last_norm(const ModuleContext& context) {
  return make_norm(context, "final_norm", context.model.final_norm).of;
}

Module make_embedding_part(const ModuleContext& context, int part) {
  const Model& model = context.model;
  const WeightPtr table = weight_of(context, "embedding", {model.vocabulary, model.hidden});
  const std::int64_t first_row = part * model.vocabulary;
  return [=](const at::Tensor& tokens, const Pass& pass) {
    return embed_part(tokens, table, first_row, CrossingPtr(), pass.queue);
  };
}

Module make_head_part(const ModuleContext& context) {
  const Model& model = context.model;
  (void)weight_of(context, model.tied_embeddings ? "embedding" : "head", {model.vocabulary, model.hidden});
  if (model.head_bias) (void)context.weights.take("head.bias", {model.vocabulary});
  return {};
}

}  // namespace plumb::exec
