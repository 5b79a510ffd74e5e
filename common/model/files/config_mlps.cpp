#include <functional>

#include "common/model/files/config_layers.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

using IsMoe = std::function<bool(std::int64_t layer)>;

Activation read_activation(ConfigFields& fields, const ModelFamily& family) {
  const auto value = fields.find({"hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"});
  if (!value) return family.activation;
  const std::string word = value->text();
  const bool gated = is_gated(family.activation);
  const bool gelu = word.starts_with("gelu") || word == "quick_gelu";
  const bool silu = word == "silu" || word == "swish";
  if (gated && silu) return Activation::swiglu;
  if (gated && gelu) return Activation::geglu;
  if (!gated && gelu) return word == "gelu" || word == "gelu_python" ? Activation::gelu_erf : Activation::gelu;
  if (!gated && word == "relu2") return Activation::relu2;
  fields.lack(
      std::string("the activation ") + word + (gated ? ", known are silu and gelu" : ", known are gelu and relu2"),
      value->path());
  return family.activation;
}

std::optional<std::int64_t> read_mlp_width(ConfigFields& fields, std::int64_t hidden) {
  const auto width = fields.optional_integer({"intermediate_size", "n_inner", "ffn_hidden_size"}, 1, limits::width);
  const bool gpt = fields.find({"n_embd"}).has_value();
  return width || !gpt ? width : 4 * hidden;
}

// `moe_layer_freq` is a number or a list of 0 and 1.
IsMoe by_frequency(const YamlValue& frequency) {
  if (!frequency.is_list()) {
    const std::int64_t every = frequency.integer(1, limits::layers);
    return [every](std::int64_t i) { return i % every == 0; };
  }
  std::vector<bool> listed;
  for (const YamlValue& item : frequency.items()) listed.push_back(item.integer(0, 1) == 1);
  return [listed](std::int64_t i) { return listed.at(static_cast<std::size_t>(i)); };
}

IsMoe listed_moe(const YamlValue& types) {
  std::vector<bool> listed;
  for (const YamlValue& item : types.items()) listed.push_back(item.choice({"dense", "sparse"}) == 1);
  return [listed](std::int64_t i) { return listed.at(static_cast<std::size_t>(i)); };
}

// Tells which layers have experts: all, unless a field lists them.
IsMoe read_moe_rule(ConfigFields& fields, const ModelFamily& family, std::int64_t layers) {
  const auto types = fields.find({"mlp_layer_types"});
  const auto numbers = fields.find({"moe_layers"});
  const auto interleaved = fields.optional_integer({"interleave_moe_layer_step"}, 1, limits::layers);
  const auto first = fields.optional_integer({"first_k_dense_replace"}, 0, limits::layers);
  const auto frequency = fields.find({"moe_layer_freq"});
  const auto step = fields.optional_integer({"decoder_sparse_step"}, 1, limits::layers);
  const auto period = fields.optional_integer({"expert_layer_period"}, 1, limits::layers);
  const auto offset = fields.optional_integer({"expert_layer_offset"}, 0, limits::layers);
  std::set<std::int64_t> dense;
  if (const auto only = fields.find({"mlp_only_layers"})) {
    for (const YamlValue& item : only->items()) dense.insert(item.integer(0, layers - 1));
  }
  for (const auto& list : {types, frequency}) {
    if (list && list->is_list() && static_cast<std::int64_t>(list->items().size()) != layers) {
      list->fail(list->path() + ": expected one entry for each of the " + std::to_string(layers) + " layers");
    }
  }
  if (types) return listed_moe(*types);
  if (numbers && numbers->is_list()) {
    std::set<std::int64_t> with_experts;
    for (const YamlValue& item : numbers->items()) with_experts.insert(item.integer(0, layers - 1));
    return [with_experts](std::int64_t i) { return with_experts.contains(i); };
  }
  if (interleaved) return [every = *interleaved](std::int64_t i) { return (i + 1) % every == 0; };
  if (family.dense_first && !first) (void)fields.require({"first_k_dense_replace"});
  if (first || frequency) {
    const IsMoe often = frequency ? by_frequency(*frequency) : IsMoe([](std::int64_t) { return true; });
    return [often, from = first.value_or(0)](std::int64_t i) { return i >= from && often(i); };
  }
  if (step || !dense.empty()) {
    return [dense, every = step.value_or(1)](std::int64_t i) { return (i + 1) % every == 0 && !dense.contains(i); };
  }
  if (period) {
    if (!offset || *offset >= *period) {
      fields.fail("'expert_layer_offset' must be there, and less than 'expert_layer_period'");
    }
    return [every = *period, at = *offset](std::int64_t i) { return i % every == at; };
  }
  return [](std::int64_t) { return true; };
}

// Returns the width of all shared experts together. Families that have some must state a width or a number; 0 is none.
std::int64_t read_shared_width(ConfigFields& fields, const ModelFamily& family, std::int64_t expert_width) {
  const auto width = fields.optional_integer(
      {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"}, 0,
      limits::width);
  const Names count_names = {"n_shared_experts", "num_shared_experts"};
  const auto count = fields.optional_integer(count_names, 0, limits::shared_experts);
  if (!width && !count && (family.dense_first || family.shared_gate)) (void)fields.require(count_names);
  return width.value_or(count.value_or(family.shared_always ? 1 : 0) * expert_width);
}

std::optional<MoeMlp> read_moe(ConfigFields& fields, const ModelFamily& family, Activation activation,
                               const std::optional<std::int64_t>& width) {
  const auto experts =
      fields.optional_integer({"num_experts", "num_local_experts", "n_routed_experts"}, 0, limits::experts);
  const auto chosen = fields.optional_integer({"num_experts_per_tok", "num_experts_per_token", "experts_per_token"}, 0,
                                              limits::experts);
  const auto own = fields.optional_integer({"moe_intermediate_size"}, 1, limits::width);
  if (!experts && (chosen || own)) {
    (void)fields.require({"num_experts", "num_local_experts", "n_routed_experts"});
  }
  // Jamba writes one expert for a dense MLP.
  if (experts.value_or(0) == 0 || (experts == 1 && family.inner_norms)) {
    return std::nullopt;
  }
  if (!chosen || *chosen < 1 || *chosen > *experts) {
    fields.fail("'num_experts_per_tok' must be there, from 1 to " + std::to_string(*experts) + " experts");
  }
  if (!own && (family.own_expert_width || !width)) (void)fields.require({"moe_intermediate_size"});
  MoeMlp moe = {.experts = *experts, .top_k = *chosen, .width = own ? *own : *width};
  moe.shared_width = read_shared_width(fields, family, moe.width);
  moe.shared_gate = family.shared_gate && moe.shared_width > 0;
  moe.router_bias = moe.expert_bias = family.moe_bias;
  moe.activation = activation;
  return moe;
}

// Llama 4 has a width of its own for dense layers; Granite 4 without experts has its shared MLP alone.
std::optional<std::int64_t> read_dense_width(ConfigFields& fields, const std::optional<std::int64_t>& width,
                                             bool experts) {
  const auto own = fields.optional_integer({"intermediate_size_mlp"}, 1, limits::width);
  const auto shared = experts ? std::nullopt : fields.optional_integer({"shared_intermediate_size"}, 0, limits::width);
  if (own) return own;
  return shared.value_or(0) > 0 ? shared : width;
}

bool read_mlp_bias(ConfigFields& fields, const ModelFamily& family) {
  const bool always = family.bias == BiasRule::all || family.bias == BiasRule::none_but_mlp;
  return always || fields.flag({"mlp_bias"}, false);
}

}  // namespace

std::vector<Mlp> read_mlps(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden,
                           const std::vector<LayerWord>& words) {
  const Activation activation = read_activation(fields, family);
  const std::optional<std::int64_t> width = read_mlp_width(fields, hidden);
  const std::optional<MoeMlp> moe = read_moe(fields, family, activation, width);
  const std::optional<std::int64_t> dense_width = read_dense_width(fields, width, moe.has_value());
  const IsMoe is_moe = read_moe_rule(fields, moe ? family : ModelFamily{}, static_cast<std::int64_t>(words.size()));
  const bool bias = read_mlp_bias(fields, family);
  const auto dense = [&]() -> Mlp {
    if (!dense_width) (void)fields.require({"intermediate_size", "n_inner", "ffn_hidden_size"});
    return DenseMlp{.width = *dense_width, .activation = activation, .bias = bias};
  };
  std::vector<Mlp> mlps;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == LayerWord::moe && !moe) fields.fail("layer " + std::to_string(i) + " needs 'n_routed_experts'");
    if (family.one_mixer_per_layer) {
      mlps.push_back(words[i] == LayerWord::mlp ? dense() : words[i] == LayerWord::moe ? Mlp{*moe} : Mlp{});
    } else {
      mlps.push_back(moe && is_moe(static_cast<std::int64_t>(i)) ? Mlp{*moe} : dense());
    }
  }
  return mlps;
}

}  // namespace plumb
