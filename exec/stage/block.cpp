#include "exec/stage/block.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

Module make_module(const Model& model, int block, std::int64_t sequence, WeightStore& store, const Numerics& numerics) {
  const bool is_layer = block > 0 && block < head_block(model);
  const ModuleContext context{.model = model,
                              .weights = store,
                              .prefix = is_layer ? "layers." + std::to_string(block - 1) + "." : "",
                              .layer = block - 1,
                              .sequence = sequence,
                              .numerics = numerics};
  Module module = block == 0 ? make_embedding(context)
                  : is_layer ? make_layer(context, model.layers[static_cast<std::size_t>(block - 1)])
                             : make_head(context);
  store.require_all_taken();
  return module;
}

}  // namespace

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

Block::Block(const Model& model, int block, std::int64_t sequence, std::uint64_t seed, const Numerics& numerics)
    : store_(block_parameters(model, block), seed, numerics),
      module_(make_module(model, block, sequence, store_, numerics)),
      has_input_gradient_(block > 0) {}

at::Tensor Block::forward(at::Tensor input, Pass pass, bool keep) {
  const c10::AutoGradMode grad_mode(keep);
  if (!keep) {
    return module_(input, pass);
  }
  const int microbatch = pass.microbatch;
  pass.queue = c10::make_intrusive<WeightQueue>();
  if (has_input_gradient_) {
    input = input.detach().requires_grad_();
  }
  KeptTensors kept;
  std::optional<KeptTensors::Listing> listing;
  if (pass.lists_kept) {
    kept.add_leaf(input);
    listing.emplace(kept);
  }
  at::Tensor output = module_(input, pass).contiguous();
  listing.reset();
  at::Tensor result = output.detach();
  output.set_data(at::empty({0}, output.options()));
  const auto [position, inserted] = graphs_.try_emplace(microbatch, Graph{.input = std::move(input),
                                                                          .output = std::move(output),
                                                                          .queue = std::move(pass.queue),
                                                                          .kept = std::move(kept)});
  if (!inserted) {
    throw RunError("microbatch " + std::to_string(microbatch), "F of a microbatch whose F was before it");
  }
  return result;
}

KeptTensors* Block::kept(int microbatch) {
  const auto found = graphs_.find(microbatch);
  return found == graphs_.end() ? nullptr : &found->second.kept;
}

at::Tensor Block::input_gradient(int microbatch, at::Tensor output_gradient) {
  auto node = graphs_.extract(microbatch);
  if (node.empty()) {
    throw RunError("microbatch " + std::to_string(microbatch), "I or B of a microbatch without F (or R) before it");
  }
  Graph graph = std::move(node.mapped());
  graph.output.backward(std::move(output_gradient));
  queues_[microbatch] = std::move(graph.queue);
  if (!has_input_gradient_) {
    return {};
  }
  graph.output.reset();
  at::Tensor gradient = graph.input.grad();
  graph.input.mutable_grad().reset();
  return gradient.contiguous();
}

void Block::weight_gradient(int microbatch) {
  auto node = queues_.extract(microbatch);
  if (node.empty()) {
    throw RunError("microbatch " + std::to_string(microbatch), "W of a microbatch without I before it");
  }
  const c10::NoGradGuard no_grad;
  node.mapped()->run();
}

}  // namespace plumb::exec
