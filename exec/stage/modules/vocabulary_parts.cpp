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
  const int position = context.divided == nullptr ? 0 : context.divided->group->position();
  return [=, sequence = context.sequence](const at::Tensor& x, const Pass& pass) {
    const std::int64_t first = pass.slice.first_token + first_own_token(position, x.size(1), sequence);
    return add_positions(x, positions, first, pass.queue);
  };
}

Module make_last_norm(const ModuleContext& context) {
  return make_norm(context, "final_norm", context.model.final_norm).of;
}

std::int64_t first_row_of_part(const Model& whole, const VocabularyPart& part, const Divided* divided) {
  const std::int64_t in_part = divided == nullptr ? 0 : divided->of.first_of_vocabulary();
  return part.index * with_rows_of_part(whole, part).vocabulary + in_part;
}

Module make_embedding_part(const ModuleContext& context, std::int64_t first_row) {
  const Model& model = context.model;
  const WeightPtr table = weight_of(context, "embedding", {model.vocabulary, model.hidden});
  const CrossingPtr exit = exit_of(context.divided, "embedding");
  return [=](const at::Tensor& tokens, const Pass& pass) {
    return embed_part(tokens, table, first_row, exit, pass.queue);
  };
}

Module make_head_part(const ModuleContext& context) {
  const Model& model = context.model;
  (void)weight_of(context, model.tied_embeddings ? "embedding" : "head", {model.vocabulary, model.hidden});
  if (model.head_bias) (void)context.weights.take("head.bias", {model.vocabulary});
  return {};
}

}  // namespace plumb::exec
