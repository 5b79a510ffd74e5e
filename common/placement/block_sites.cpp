// Sites of MLPs and of whole blocks.
#include "common/placement/site_list.hpp"

namespace plumb {
namespace {

NamedShape add_mlp(SiteList&, const std::monostate&, const NamedShape& x) { return x; }

struct MlpNames {
  std::string gate;
  std::string up;
  std::string activation;
  std::string down;
};

NamedShape add_dense(SiteList& list, const MlpNames& names, const DenseMlp& mlp, const NamedShape& x) {
  const Shape width{{Dim::width, mlp.width}};
  Site activation{.name = names.activation, .kind = OperationKind::elementwise};
  if (is_gated(mlp.activation))
    activation.inputs.push_back({list.matmul(names.gate, x, width, mlp.bias).outputs.front()});
  activation.inputs.push_back({list.matmul(names.up, x, width, mlp.bias).outputs.front()});
  activation.outputs = {{names.activation, activation.inputs.front().value.shape}};
  const NamedShape inner = list.add(std::move(activation)).outputs.front();
  return list.matmul(names.down, inner, {{Dim::hidden, list.hidden()}}, mlp.bias).outputs.front();
}

NamedShape add_mlp(SiteList& list, const DenseMlp& mlp, const NamedShape& x) {
  return add_dense(list, {"mlp.gate", "mlp.up", "mlp.activation", "mlp.down"}, mlp, x);
}

// A routed expert's matrices, of rows that it has been given.
NamedShape expert_matmul(SiteList& list, const std::string& name, const NamedShape& x, const MoeMlp& moe,
                         const Extent& out) {
  Site& site = list.matmul(name, x, {out}, moe.expert_bias);
  site.kind = OperationKind::expert_matmul;
  for (NamedShape& weight : site.weights) weight.shape.insert(weight.shape.begin(), {Dim::experts, moe.experts});
  return site.outputs.front();
}

NamedShape add_mlp(SiteList& list, const MoeMlp& moe, const NamedShape& x) {
  const Extent width{Dim::width, moe.width};
  const Extent hidden{Dim::hidden, list.hidden()};
  const Extent rows{Dim::rows, list.tokens().sequences * list.tokens().sequence * moe.top_k};
  const NamedShape scores =
      list.matmul("mlp.router", x, {{Dim::experts, moe.experts}}, moe.router_bias).outputs.front();
  const NamedShape choice = list.pass("mlp.route", OperationKind::routing, scores).outputs.front();
  Site dispatch{.name = "mlp.dispatch", .kind = OperationKind::routing, .inputs = {{x}, {choice}}};
  dispatch.outputs = {{dispatch.name, {rows, hidden}}};
  dispatch.passes_sums = true;
  const NamedShape given = list.add(std::move(dispatch)).outputs.front();
  Site activation{.name = "mlp.experts.activation", .kind = OperationKind::elementwise};
  if (is_gated(moe.activation)) {
    activation.inputs.push_back({expert_matmul(list, "mlp.experts.gate", given, moe, width)});
  }
  activation.inputs.push_back({expert_matmul(list, "mlp.experts.up", given, moe, width)});
  activation.outputs = {{activation.name, {rows, width}}};
  const NamedShape inner = list.add(std::move(activation)).outputs.front();
  const NamedShape made = expert_matmul(list, "mlp.experts.down", inner, moe, hidden);
  Site combine{.name = "mlp.combine", .kind = OperationKind::routing, .inputs = {{made}, {choice}}};
  combine.outputs = {{combine.name, list.hidden_of_tokens()}};
  combine.passes_sums = true;
  NamedShape y = list.add(std::move(combine)).outputs.front();
  if (moe.shared_width == 0) return y;

  NamedShape shared = add_dense(list, {"mlp.shared.gate", "mlp.shared.up", "mlp.shared.activation", "mlp.shared.down"},
                                {.width = moe.shared_width, .activation = moe.activation}, x);
  if (moe.shared_gate) {
    const NamedShape gate = list.matmul("mlp.shared_gate", x, {{Dim::features, 1}}).outputs.front();
    Site product{.name = "mlp.shared_gate.product", .kind = OperationKind::elementwise, .inputs = {{shared}, {gate}}};
    product.outputs = {{product.name, shared.shape}};
    shared = list.add(std::move(product)).outputs.front();
  }
  return list.residual("mlp.sum", y, shared).outputs.front();
}

// As common/model/operations.cpp: norms in the order of `layer_parameters`.
NamedShape add_layer(SiteList& list, const Layer& layer, const NamedShape& input) {
  const bool four = layer.norms == 4;
  const auto norm = [&](const char* name, const NamedShape& x) {
    return list.norm(name, layer.norm, x).outputs.front();
  };
  NamedShape stream = input;
  NamedShape normed = norm("norm_1", input);
  if (!std::holds_alternative<std::monostate>(layer.mixer)) {
    NamedShape branch = add_mixer_sites(list, layer.mixer, normed);
    if (four) branch = norm("norm_2", branch);
    stream = list.residual("residual_1", stream, branch).outputs.front();
  }
  if (layer.norms > 1) normed = norm(four ? "norm_3" : "norm_2", stream);
  if (std::holds_alternative<std::monostate>(layer.mlp)) return stream;
  NamedShape branch = add_mlp_sites(list, layer.mlp, normed);
  if (four) branch = norm("norm_4", branch);
  return list.residual("residual_2", stream, branch).outputs.front();
}

// Of images the class token alone, which the rank of the first tokens has.
NamedShape class_token(SiteList& list, const NamedShape& x) {
  Site site{.name = "class_token", .kind = OperationKind::elementwise, .inputs = {{x}}};
  site.outputs = {{site.name, {x.shape.front(), x.shape.back()}}};
  return list.add(std::move(site)).outputs.front();
}

// Gives the logits.
NamedShape add_head(SiteList& list, const NamedShape& x) {
  const Model& model = list.model();
  const NamedShape seen = model.vision ? class_token(list, x) : x;
  const Extent outputs{Dim::vocabulary, model.vision ? model.vision->classes : model.vocabulary};
  NamedShape logits = list.matmul("head", seen, {outputs}, model.head_bias).outputs.front();
  const Shape each{seen.shape.begin(), seen.shape.end() - 1};
  Site loss{.name = "loss", .kind = OperationKind::loss, .inputs = {{logits}}, .outputs = {{"loss", each}}};
  loss.statistics = each;
  loss.statistics.push_back({Dim::features, 3});
  list.add(std::move(loss));
  return logits;
}

// Of the head's weights, by which of the vocabulary's logits is the target's.
void add_target_rows(SiteList& list, const NamedShape& logits) {
  Site rows{.name = "target_rows", .kind = OperationKind::lookup, .inputs = {{logits}}, .goes_back = false};
  rows.outputs = {{rows.name, list.hidden_of_tokens()}};
  list.add(std::move(rows));
}

NamedShape value(std::string name, Shape shape) { return {std::move(name), std::move(shape)}; }

// Of a part of the vocabulary: the head, and those of modules that predict more tokens.
std::vector<Site> part_of_head_sites(const Model& model, const Tokens& tokens) {
  std::vector<Site> all;
  for (std::int64_t head = 0; head <= model.mtp_modules; ++head) {
    const std::string prefix = head == 0 ? "" : "mtp." + std::to_string(head - 1) + ".";
    SiteList list(model, tokens, prefix);
    const NamedShape logits = add_head(list, value(prefix + "input", list.hidden_of_tokens()));
    if (model.part == ModelPart::vocabulary_and_target_rows) add_target_rows(list, logits);
    for (Site& site : std::move(list).take()) all.push_back(std::move(site));
  }
  return all;
}

}  // namespace

NamedShape add_mlp_sites(SiteList& list, const Mlp& mlp, const NamedShape& x) {
  return std::visit([&](const auto& kind) { return add_mlp(list, kind, x); }, mlp);
}

std::vector<Site> embedding_sites(const Model& model, const Tokens& tokens) {
  SiteList list(model, tokens, "embedding.");
  const Extent hidden{Dim::hidden, model.hidden};
  if (model.vision) {
    const Vision& vision = *model.vision;
    Shape pixels = list.of_tokens({{Dim::features, vision.channels * vision.patch_size * vision.patch_size}});
    Site& site = list.matmul("patches", value("tokens", std::move(pixels)), {hidden}, true);
    site.weights.push_back({"embedding.class_token", {hidden}});
    site.weights.push_back({"embedding.positions", {{Dim::features, plumb::tokens(vision)}, hidden}});
    std::vector<Site> all = std::move(list).take();
    all.front().name = all.front().outputs.front().name = "patches";
    return all;
  }
  Site positions{.name = "positions", .kind = OperationKind::elementwise};
  positions.outputs = {{"positions", list.hidden_of_tokens()}};
  if (adds_positions(model)) {
    positions.weights = {{"embedding.positions", {{Dim::features, model.max_positions}, hidden}}};
  }
  if (model.part == ModelPart::without_vocabulary) {  // of the rows that the parts have looked up
    positions.inputs = {{value("embedding", list.hidden_of_tokens())}};
    return {std::move(positions)};
  }
  Site site{.name = "embedding", .kind = OperationKind::lookup, .inputs = {{value("tokens", list.of_tokens({}))}}};
  site.outputs = {{"embedding", list.hidden_of_tokens()}};
  site.weights = {{"embedding.weight", {{Dim::vocabulary, model.vocabulary}, hidden}}};
  if (!adds_positions(model)) return {std::move(site)};
  positions.inputs = {{site.outputs.front()}};
  return {std::move(site), std::move(positions)};
}

std::vector<Site> layer_sites(const Model& model, const Layer& layer, const Tokens& tokens) {
  SiteList list(model, tokens);
  (void)add_layer(list, layer, value("input", list.hidden_of_tokens()));
  return std::move(list).take();
}

std::vector<Site> head_sites(const Model& model, const Tokens& tokens) {
  SiteList list(model, tokens);
  const NamedShape input = value("input", list.hidden_of_tokens());
  if (is_part_of_vocabulary(model)) return part_of_head_sites(model, tokens);
  const NamedShape normed = list.norm("final_norm", model.final_norm, input).outputs.front();
  const bool has_heads = model.part == ModelPart::whole;
  if (has_heads) (void)add_head(list, normed);
  std::vector<Site> all = std::move(list).take();
  for (std::int64_t module = 0; module < model.mtp_modules; ++module) {
    SiteList more(model, tokens, "mtp." + std::to_string(module) + ".");
    const NamedShape hidden = more.norm("norm_hidden", model.final_norm, input).outputs.front();
    const NamedShape next =
        more.norm("norm_embedding", model.final_norm, value("next_embedding", more.hidden_of_tokens())).outputs.front();
    NamedShape both = value("both", more.of_tokens({{Dim::features, 2 * model.hidden}}));
    Site& projection = more.matmul("projection", both, {{Dim::hidden, model.hidden}});
    projection.inputs = {{hidden}, {next}};
    const NamedShape stream = add_layer(more, model.layers.back(), more.made_by("projection"));
    const NamedShape out = more.norm("norm_out", model.final_norm, stream).outputs.front();
    if (has_heads) (void)add_head(more, out);
    for (Site& site : std::move(more).take()) all.push_back(std::move(site));
  }
  return all;
}

std::vector<Site> block_sites(const Model& model, std::size_t block, const Tokens& tokens) {
  if (block == 0) return embedding_sites(model, tokens);
  if (block <= model.layers.size()) return layer_sites(model, model.layers[block - 1], tokens);
  return head_sites(model, tokens);
}

}  // namespace plumb
