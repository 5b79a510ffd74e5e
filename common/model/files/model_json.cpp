#include "common/model/files/model_json.hpp"

#include <array>
#include <span>
#include <utility>

#include "common/base/document/json_fields.hpp"
#include "common/base/document/json_lister.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {

static std::vector<std::string> enum_names(Activation) { return {"gelu", "relu2", "swiglu", "geglu", "gelu_erf"}; }
static std::vector<std::string> enum_names(NormKind) { return {"rmsnorm", "layernorm"}; }
static std::vector<std::string> enum_names(Positions) { return {"none", "rope", "learned"}; }

template <class Archive>
static void fields(Archive& archive, Rotary& x) {
  archive("dim", x.dim);
  archive("interleaved", x.interleaved);
}

template <class Archive>
static void fields(Archive& archive, SoftmaxAttention& x) {
  archive("heads", x.heads);
  archive("kv_heads", x.kv_heads);
  archive("head_dim", x.head_dim);
  archive("value_dim", x.value_dim);
  archive("window", x.window);
  archive("causal", x.causal);
  archive("qkv_bias", x.qkv_bias);
  archive("out_bias", x.out_bias);
  archive("qk_norm", x.qk_norm);
  archive("output_gate", x.output_gate);
  archive("sinks", x.sinks);
  archive("rotary", x.rotary);
}

template <class Archive>
static void fields(Archive& archive, LatentAttention& x) {
  archive("heads", x.heads);
  archive("q_lora_rank", x.q_lora_rank);
  archive("kv_lora_rank", x.kv_lora_rank);
  archive("nope_dim", x.nope_dim);
  archive("rope_dim", x.rope_dim);
  archive("value_dim", x.value_dim);
}

template <class Archive>
static void fields(Archive& archive, GatedDelta& x) {
  archive("key_heads", x.key_heads);
  archive("value_heads", x.value_heads);
  archive("key_dim", x.key_dim);
  archive("value_dim", x.value_dim);
  archive("conv_kernel", x.conv_kernel);
  archive("chunk", x.chunk);
}

template <class Archive>
static void fields(Archive& archive, ChannelGatedDelta& x) {
  archive("heads", x.heads);
  archive("head_dim", x.head_dim);
  archive("conv_kernel", x.conv_kernel);
  archive("chunk", x.chunk);
}

template <class Archive>
static void fields(Archive& archive, Lightning& x) {
  archive("heads", x.heads);
  archive("head_dim", x.head_dim);
  archive("block", x.block);
}

template <class Archive>
static void fields(Archive& archive, Mamba& x) {
  archive("inner", x.inner);
  archive("state", x.state);
  archive("dt_rank", x.dt_rank);
  archive("conv_kernel", x.conv_kernel);
  archive("conv_bias", x.conv_bias);
  archive("proj_bias", x.proj_bias);
  archive("inner_norms", x.inner_norms);
}

template <class Archive>
static void fields(Archive& archive, Mamba2& x) {
  archive("heads", x.heads);
  archive("head_dim", x.head_dim);
  archive("groups", x.groups);
  archive("state", x.state);
  archive("conv_kernel", x.conv_kernel);
  archive("chunk", x.chunk);
  archive("conv_bias", x.conv_bias);
}

template <class Archive>
static void fields(Archive& archive, DenseMlp& x) {
  archive("width", x.width);
  archive("activation", x.activation);
  archive("bias", x.bias);
}

template <class Archive>
static void fields(Archive& archive, MoeMlp& x) {
  archive("experts", x.experts);
  archive("top_k", x.top_k);
  archive("width", x.width);
  archive("shared_width", x.shared_width);
  archive("shared_gate", x.shared_gate);
  archive("router_bias", x.router_bias);
  archive("expert_bias", x.expert_bias);
  archive("activation", x.activation);
}

template <class Archive>
static void fields(Archive& archive, Vision& x) {
  archive("image_size", x.image_size);
  archive("patch_size", x.patch_size);
  archive("channels", x.channels);
  archive("classes", x.classes);
}

template <class Archive>
static void fields(Archive& archive, RopeScaling& x) {
  archive("factor", x.factor);
  archive("low_frequency", x.low_frequency);
  archive("high_frequency", x.high_frequency);
  archive("original_positions", x.original_positions);
}

template <class Archive>
static void fields(Archive& archive, HuggingFaceConfig& x) {
  archive("model_type", x.model_type);
  archive("text", x.text);
}

// Only where it differs from the usual: files of models that say nothing of it have no such key.
template <class Archive>
static void arithmetic_fields(Archive& archive, Arithmetic& x) {
  archive("norm_epsilon", x.norm_epsilon);
  archive("rope_theta", x.rope_theta);
  archive("rope_scaling", x.rope_scaling);
  archive.unless_usual("raw_expert_shares", x.raw_expert_shares);
}

// The names of a variant's alternatives, in its order.
static std::vector<std::string> alternative_names(const Mixer&) {
  return {"none", "softmax", "latent", "gated_delta", "channel_gated_delta", "lightning", "mamba", "mamba2"};
}
static std::vector<std::string> alternative_names(const Mlp&) { return {"none", "dense", "moe"}; }

template <class Archive>
static void fields(Archive& archive, Layer& x) {
  archive("mixer", x.mixer);
  archive("mlp", x.mlp);
  archive("norm", x.norm);
  archive("norms", x.norms);
  archive("parallel", x.parallel);
}

template <class Archive>
static void fields(Archive& archive, Model& x) {
  archive("name", x.name);
  archive("vocabulary", x.vocabulary);
  archive("hidden", x.hidden);
  archive("final_norm", x.final_norm);
  archive("positions", x.positions);
  archive("max_positions", x.max_positions);
  archive("tied_embeddings", x.tied_embeddings);
  archive("head_bias", x.head_bias);
  archive("mtp_modules", x.mtp_modules);
  archive("vision", x.vision);
  arithmetic_fields(archive, x.arithmetic);
  archive("hugging_face", x.hugging_face);
  archive("layers", x.layers);
}

namespace {

struct SizeLimit {
  std::string_view key;
  std::int64_t most;
};

// As generous as common/model/model_limits.hpp; other sizes (heads, dimensions of heads, experts, kernels) have the
// last.
constexpr std::array<SizeLimit, 8> size_limits = {{{"hidden", limits::hidden},
                                                   {"width", limits::width},
                                                   {"shared_width", limits::width* limits::shared_experts},
                                                   {"inner", limits::hidden* limits::expand},
                                                   {"vocabulary", limits::vocabulary},
                                                   {"max_positions", limits::positions},
                                                   {"original_positions", limits::positions},
                                                   {"window", limits::positions}}};
constexpr std::int64_t usual_limit = limits::head_dim;
constexpr std::array<std::string_view, 5> keys_that_may_be_zero = {"vocabulary", "max_positions", "mtp_modules",
                                                                   "shared_width", "norms"};

// Not sizes: any number above 0.
constexpr std::array<std::string_view, 5> real_keys = {"norm_epsilon", "rope_theta", "factor", "low_frequency",
                                                       "high_frequency"};

std::int64_t largest(std::string_view key) {
  const auto* found =
      std::find_if(size_limits.begin(), size_limits.end(), [&](const SizeLimit& limit) { return limit.key == key; });
  return found == size_limits.end() ? usual_limit : found->most;
}

bool is_among(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Before fields are read: every other number below is a size.
void require_sizes(const JsonValue& json) {
  if (json.raw().is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) require_sizes(json[i]);
  } else if (json.raw().is_object()) {
    for (const auto& [key, value] : json.raw().items()) {
      if (value.is_structured()) require_sizes(json.at(key));
      if (!value.is_number()) continue;
      if (is_among(real_keys, key)) {
        if (json.at(key).number() <= 0) json.at(key).fail("must be above 0");
        continue;
      }
      (void)json.at(key).integer(is_among(keys_that_may_be_zero, key) ? 0 : 1, largest(key));
    }
  }
}

void require_multiple(const JsonValue& block, const char* key, std::int64_t value, const char* of_key,
                      std::int64_t divisor) {
  if (value % divisor == 0) return;
  block.at(key).fail("is " + std::to_string(value) + ", expected a multiple of " + of_key + " (" +
                     std::to_string(divisor) + ")");
}

// What a model block is held to as well.
void require_possible(const Layer& layer, const JsonValue& json) {
  if (const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer)) {
    require_multiple(json.at("mixer"), "heads", attention->heads, "kv_heads", attention->kv_heads);
    if (attention->rotary) {
      const JsonValue rotary = json.at("mixer").at("rotary");
      (void)rotary.at("dim").integer(2, attention->head_dim);
      require_multiple(rotary, "dim", attention->rotary->dim, "a pair", 2);
    }
  } else if (const auto* delta = std::get_if<GatedDelta>(&layer.mixer)) {
    require_multiple(json.at("mixer"), "value_heads", delta->value_heads, "key_heads", delta->key_heads);
  } else if (const auto* mamba = std::get_if<Mamba2>(&layer.mixer)) {
    require_multiple(json.at("mixer"), "heads", mamba->heads, "groups", mamba->groups);
  }
  if (const auto* moe = std::get_if<MoeMlp>(&layer.mlp)) {
    (void)json.at("mlp").at("top_k").integer(1, moe->experts);
  }
}

}  // namespace

Json to_json(const Layer& layer) { return write_fields(layer); }
Json to_json(const Model& model) { return write_fields(model); }

Json arithmetic_json(Model model) {
  model.name.clear();
  model.hugging_face.reset();
  if (model.positions != Positions::learned) model.max_positions = 0;
  return to_json(model);
}

Model model_from_json(const JsonValue& value) {
  require_sizes(value);
  Model model = read_fields<Model>(value);
  try {
    require_possible(model, Place{});
  } catch (const InputError& error) {
    value.fail(error.problem(), error.hint());
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) require_possible(model.layers[i], value.at("layers")[i]);
  if (model.vision) {
    require_multiple(value.at("vision"), "image_size", model.vision->image_size, "patch_size",
                     model.vision->patch_size);
  }
  if (model.vocabulary == 0 && !model.vision) {
    value.at("vocabulary").fail("is 0, and there is no vision either", "expected the number of token ids, at least 1");
  }
  return model;
}

std::vector<JsonTable> model_tables() { return list_fields<Model>("model"); }

}  // namespace plumb
