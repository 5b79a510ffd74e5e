#include "common/model/parameters.hpp"

#include "common/model/parameter_list.hpp"

namespace plumb {
namespace {

constexpr std::string_view of_layers = "layers.";

}  // namespace

std::string layer_prefix(std::size_t index) { return std::string(of_layers) + std::to_string(index) + "."; }

std::string_view without_layer_prefix(std::string_view name) {
  if (!name.starts_with(of_layers)) return name;
  return name.substr(name.find('.', of_layers.size()) + 1);
}

std::int64_t elements_of_shape(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::vector<Parameter> embedding_parameters(const Model& model) {
  ParameterList list("embedding.", model.hidden);
  if (model.vision) {
    const Vision& vision = *model.vision;
    list.matmul("patches", model.hidden, vision.channels * vision.patch_size * vision.patch_size, true);
    list.vector("class_token", {model.hidden});
    list.lookup("positions", tokens(vision));
    return std::move(list).take();
  }
  if (model.part != ModelPart::without_vocabulary) list.lookup("weight", model.vocabulary);
  if (adds_positions(model)) list.lookup("positions", model.max_positions);
  return std::move(list).take();
}

std::vector<Parameter> layer_parameters(const Model& model, std::size_t index) {
  ParameterList list(layer_prefix(index), model.hidden);
  add_layer(list, model.layers.at(index));
  return std::move(list).take();
}

std::vector<Parameter> final_norm_parameters(const Model& model) {
  if (is_part_of_vocabulary(model)) return {};
  ParameterList list("", model.hidden);
  list.norm("final_norm", model.final_norm);
  return std::move(list).take();
}

std::vector<Parameter> head_parameters(const Model& model) {
  ParameterList list("head.", model.hidden);
  const std::int64_t outputs = model.vision ? model.vision->classes : model.vocabulary;
  if (model.part == ModelPart::without_vocabulary) return {};
  if (!model.tied_embeddings) list.add("weight", {outputs, model.hidden}, ParameterRole::matmul);
  if (model.head_bias) list.vector("bias", {outputs});
  return std::move(list).take();
}

// DeepSeek-V3, arXiv 2412.19437, section 2.2: norms of the hidden state and of the next token's embedding, their
// concatenation projected back to hidden, one layer, a norm before the shared head.
std::vector<Parameter> mtp_parameters(const Model& model) {
  if (is_part_of_vocabulary(model)) return {};
  std::vector<Parameter> all;
  for (std::int64_t module = 0; module < model.mtp_modules; ++module) {
    const std::string prefix = "mtp." + std::to_string(module) + ".";
    ParameterList list(prefix, model.hidden);
    list.norm("norm_hidden", model.final_norm);
    list.norm("norm_embedding", model.final_norm);
    list.matmul("projection", model.hidden, 2 * model.hidden);
    add_layer(list, model.layers.back());
    list.norm("norm_out", model.final_norm);
    for (Parameter& parameter : std::move(list).take()) all.push_back(std::move(parameter));
  }
  return all;
}

namespace {

std::int64_t sum(const std::vector<Parameter>& parameters) {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters) total += elements(parameter);
  return total;
}

}  // namespace

std::int64_t active_elements(const Parameter& parameter, const Mlp& mlp) {
  const bool of_experts =
      parameter.role == ParameterRole::expert_matmul || parameter.role == ParameterRole::expert_vector;
  if (!of_experts) return elements(parameter);
  const auto& moe = std::get<MoeMlp>(mlp);
  return elements(parameter) / moe.experts * moe.top_k;
}

ParameterCounts count_parameters(const Model& model) {
  ParameterCounts counts;
  counts.embedding = sum(embedding_parameters(model));
  counts.head = sum(head_parameters(model));
  counts.final_norm = sum(final_norm_parameters(model));
  counts.mtp = sum(mtp_parameters(model));
  counts.total = counts.active = counts.embedding + counts.head + counts.final_norm;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    std::int64_t all = 0;
    std::int64_t active = 0;
    std::int64_t matmul = 0;
    for (const Parameter& parameter : layer_parameters(model, i)) {
      const std::int64_t used = active_elements(parameter, model.layers[i].mlp);
      all += elements(parameter);
      active += used;
      if (is_matmul(parameter.role)) matmul += used;
    }
    counts.layers.push_back(all);
    counts.layers_active.push_back(active);
    counts.layers_matmul_active.push_back(matmul);
    counts.total += all;
    counts.active += active;
  }
  return counts;
}

}  // namespace plumb
