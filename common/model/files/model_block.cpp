#include "common/model/files/model_block.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "common/base/synonyms.hpp"
#include "common/model/files/model_fields.hpp"
#include "common/model/layer_text.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

// A value of the map `parent`, or `fallback` when the map or the key is not there.
std::int64_t size_or(const std::optional<YamlValue>& parent, const std::string& key, std::int64_t fallback) {
  const std::optional<YamlValue> value = parent ? parent->find(key) : std::nullopt;
  return value ? value->integer() : fallback;
}

bool flag_or(const std::optional<YamlValue>& parent, const std::string& key, bool fallback) {
  const std::optional<YamlValue> value = parent ? parent->find(key) : std::nullopt;
  return value ? value->boolean() : fallback;
}

// The same with the table's default.
std::int64_t size_of(const FieldBlock& table, const std::optional<YamlValue>& parent, const std::string& key) {
  return value_or_default(table, parent, key).integer();
}
bool flag_of(const FieldBlock& table, const std::optional<YamlValue>& parent, const std::string& key) {
  return value_or_default(table, parent, key).boolean();
}

void require_multiple(const YamlValue& place, const std::string& what, std::int64_t value, const std::string& of,
                      std::int64_t divisor) {
  if (value % divisor == 0) return;
  place.fail(what + " (" + std::to_string(value) + ") must be a multiple of " + of + " (" + std::to_string(divisor) +
             ")");
}

class BlockReader {
 public:
  explicit BlockReader(const YamlValue& block) : block_(block) {
    check_fields(model_block(), block);
    hidden_ = block.require("hidden").integer();
    bias_ = flag_of(model_block(), block, "bias");
    attention_bias_ = flag_or(block, "attention_bias", bias_);
    parallel_ = flag_of(model_block(), block, "parallel");
    images_ = block.find("patches").has_value();
    const std::optional<YamlValue> norm = block.find("norm");
    if (norm) norm_ = norm->choice({"rmsnorm", "layernorm"}) == 0 ? NormKind::rmsnorm : NormKind::layernorm;
    if (const auto activation = block.find("activation")) {
      activation_ = std::array{Activation::swiglu, Activation::gelu, Activation::geglu, Activation::relu2,
                               Activation::gelu_erf}[activation->choice(activation_words())];
    }
  }

  Model read() {
    Model model = {.hidden = hidden_, .final_norm = norm_};
    if (const auto name = block_.find("name")) model.name = name->text();
    images_ ? read_images(model) : read_text(model);
    const YamlValue layers = block_.require("layers");
    if (!layers.is_text()) {
      layers.fail("layers: expected text such as \"full/dense*12\"", "write attention/mlp, repeated with *");
    }
    std::map<std::string, Layer> kinds;
    for (const std::string& word : expand_layers(layers.text(), layers.place())) {
      if (!kinds.contains(word)) kinds.emplace(word, layer(layers, word));
      model.layers.push_back(kinds.at(word));
    }
    require_possible(model, block_.place());
    return model;
  }

 private:
  // Tokens in, the next token out.
  void read_text(Model& model) const {
    model.vocabulary = block_.require("vocabulary").integer();
    model.tied_embeddings = flag_of(model_block(), block_, "tied_embeddings");
    model.head_bias = flag_or(block_, "head_bias", false);
    model.mtp_modules = size_of(model_block(), block_, "mtp");
    model.max_positions = size_or(block_, "max_positions", 0);
    if (const auto positions = block_.find("positions")) {
      model.positions = std::array{Positions::rope, Positions::learned,
                                   Positions::none}[positions->choice({"rope", "learned", "none"})];
      if (model.positions == Positions::learned && model.max_positions == 0) {
        positions->fail("learned positions need the key 'max_positions': the rows of their table");
      }
    }
  }

  // ViT (arXiv 2010.11929): one learned position for each patch and for the class token.
  void read_images(Model& model) const {
    for (const char* key : {"vocabulary", "tied_embeddings", "mtp", "positions", "max_positions", "rotary"}) {
      if (const auto value = block_.find(key)) {
        value->fail(std::string(key) + ": a model of images (key 'patches') has none", "leave the key out");
      }
    }
    const YamlValue patches = block_.require("patches");
    model.vision = Vision{.image_size = patches.require("image").integer(),
                          .patch_size = patches.require("patch").integer(),
                          .channels = size_of(patches_block(), patches, "channels"),
                          .classes = patches.require("classes").integer()};
    require_multiple(patches, "image", model.vision->image_size, "patch", model.vision->patch_size);
    model.positions = Positions::learned;
    model.max_positions = tokens(*model.vision);
    model.head_bias = flag_or(block_, "head_bias", true);
  }

  Layer layer(const YamlValue& layers, const std::string& word) const {
    const std::size_t slash = word.find('/');
    if (slash == std::string::npos || word.find('/', slash + 1) != std::string::npos) {
      layers.fail("layers: '" + word + "' is not attention/mlp", "write for example full/dense");
    }
    const auto known = [&](const std::string& name, const std::vector<std::string>& names, const std::string& what) {
      const auto found = find_name(name, names);
      if (!found)
        layers.fail("layers: unknown " + what + " '" + name + "' in '" + word + "'", did_you_mean(name, names));
      return names[*found];
    };
    const std::string mixer_word = known(word.substr(0, slash), mixer_words(), "attention");
    const std::string mlp_word = known(word.substr(slash + 1), mlp_words(), "mlp");
    if (mixer_word == "none" && mlp_word == "none") layers.fail("layers: 'none/none' is no layer");
    const bool both = mixer_word != "none" && mlp_word != "none";
    if (images_ && mixer_word == "sliding") layers.fail("layers: attention in a window is not described for images");
    return Layer{.mixer = mixer(mixer_word),
                 .mlp = mlp(mlp_word),
                 .norm = norm_,
                 .norms = both && !parallel_ ? 2 : 1,
                 .parallel = both && parallel_};
  }

  Mixer mixer(const std::string& word) const {
    if (word == "full" || word == "sliding") return softmax(word == "sliding");
    if (word == "mla") return latent();
    if (word == "linear") return gated_delta();
    if (word == "kda") return channel_gated_delta();
    if (word == "lightning") return lightning();
    if (word == "mamba") return mamba();
    if (word == "mamba2") return mamba2();
    return std::monostate{};
  }

  // `heads`, for the mixers that have it as a default or in their name.
  std::int64_t heads() const { return block_.require("heads").integer(); }

  std::int64_t head_dim() const {
    if (const auto value = block_.find("head_dim")) return value->integer();
    require_multiple(block_.require("hidden"), "hidden", hidden_, "heads", heads());
    return hidden_ / heads();
  }

  Mixer softmax(bool sliding) const {
    SoftmaxAttention attention = {
        .heads = heads(), .causal = !images_, .qkv_bias = attention_bias_, .out_bias = attention_bias_};
    attention.kv_heads = size_or(block_, "kv_heads", attention.heads);
    require_multiple(block_.require("heads"), "heads", attention.heads, "kv_heads", attention.kv_heads);
    attention.head_dim = head_dim();
    attention.value_dim = size_or(block_, "value_dim", attention.head_dim);
    attention.qk_norm = flag_of(model_block(), block_, "qk_norm");
    attention.output_gate = flag_of(model_block(), block_, "output_gate");
    if (sliding) attention.window = block_.require("window").integer();
    attention.rotary = rotary(attention.head_dim);
    return attention;
  }

  std::optional<Rotary> rotary(std::int64_t head_dim) const {
    const auto block = block_.find("rotary");
    if (!block) return std::nullopt;
    const Rotary rotary = {.dim = block->find("dim") ? block->require("dim").integer(2, head_dim) : head_dim,
                           .interleaved = flag_of(rotary_block(), block, "interleaved")};
    require_multiple(*block, "rotary.dim", rotary.dim, "a pair", 2);
    return rotary;
  }

  Mixer latent() const {
    const std::optional<YamlValue> mla = block_.find("mla");
    if (!mla) block_.fail("mla layers need the key 'mla' with kv_lora_rank, nope_dim, rope_dim and value_dim");
    LatentAttention attention = {.heads = heads(),
                                 .kv_lora_rank = mla->require("kv_lora_rank").integer(),
                                 .nope_dim = mla->require("nope_dim").integer(),
                                 .rope_dim = mla->require("rope_dim").integer(),
                                 .value_dim = mla->require("value_dim").integer()};
    if (const auto rank = mla->find("q_lora_rank")) attention.q_lora_rank = rank->integer();
    return attention;
  }

  Mixer gated_delta() const {
    const auto linear = block_.find("linear");
    const auto has = [&](const char* key) { return linear && linear->find(key).has_value(); };
    GatedDelta delta;
    delta.key_heads = size_or(linear, "key_heads", has("key_heads") ? 0 : heads());
    delta.value_heads = size_or(linear, "value_heads", delta.key_heads);
    delta.key_dim = size_or(linear, "key_dim", has("key_dim") ? 0 : head_dim());
    delta.value_dim = size_or(linear, "value_dim", delta.key_dim);
    delta.conv_kernel = size_or(linear, "conv_kernel", delta.conv_kernel);
    delta.chunk = size_or(linear, "chunk", delta.chunk);
    require_multiple(linear ? *linear : block_, "value_heads", delta.value_heads, "key_heads", delta.key_heads);
    return delta;
  }

  Mixer channel_gated_delta() const {
    const auto kda = block_.find("kda");
    const auto has = [&](const char* key) { return kda && kda->find(key).has_value(); };
    ChannelGatedDelta delta;
    delta.heads = size_or(kda, "heads", has("heads") ? 0 : heads());
    delta.head_dim = size_or(kda, "head_dim", has("head_dim") ? 0 : head_dim());
    delta.conv_kernel = size_or(kda, "conv_kernel", delta.conv_kernel);
    delta.chunk = size_or(kda, "chunk", delta.chunk);
    return delta;
  }

  Mixer lightning() const {
    const auto block = block_.find("lightning");
    const auto has = [&](const char* key) { return block && block->find(key).has_value(); };
    Lightning result;
    result.heads = size_or(block, "heads", has("heads") ? 0 : heads());
    result.head_dim = size_or(block, "head_dim", has("head_dim") ? 0 : head_dim());
    result.block = size_or(block, "block", result.block);
    return result;
  }

  Mixer mamba() const {
    const auto block = block_.find("mamba");
    Mamba result;
    result.inner = hidden_ * size_of(mamba_block(), block, "expand");
    result.state = size_of(mamba_block(), block, "state");
    result.dt_rank = size_or(block, "dt_rank", (hidden_ + 15) / 16);
    result.conv_kernel = size_or(block, "conv_kernel", result.conv_kernel);
    result.conv_bias = flag_of(mamba_block(), block, "conv_bias");
    result.proj_bias = flag_of(mamba_block(), block, "proj_bias");
    result.inner_norms = flag_of(mamba_block(), block, "inner_norms");
    return result;
  }

  Mixer mamba2() const {
    const auto block = block_.find("mamba2");
    if (!block) block_.fail("mamba2 layers need the key 'mamba2' with heads, head_dim and state");
    Mamba2 result;
    result.heads = block->require("heads").integer();
    result.head_dim = block->require("head_dim").integer();
    result.state = block->require("state").integer();
    result.groups = size_of(mamba2_block(), block, "groups");
    result.conv_kernel = size_or(block, "conv_kernel", result.conv_kernel);
    result.chunk = size_or(block, "chunk", result.chunk);
    result.conv_bias = flag_of(mamba2_block(), block, "conv_bias");
    require_multiple(*block, "heads", result.heads, "groups", result.groups);
    return result;
  }

  Mlp mlp(const std::string& word) const {
    if (word == "dense") {
      return DenseMlp{.width = block_.require("ffn").integer(), .activation = activation_, .bias = bias_};
    }
    return word == "moe" ? Mlp{experts()} : Mlp{};
  }

  MoeMlp experts() const {
    const auto block = block_.find("experts");
    if (!block) block_.fail("moe layers need the key 'experts' with count, top_k and ffn");
    MoeMlp moe = {.experts = block->require("count").integer(),
                  .width = block->require("ffn").integer(),
                  .activation = activation_};
    moe.top_k = block->require("top_k").integer(1, moe.experts);
    moe.shared_width = size_of(experts_block(), block, "shared") * moe.width;
    moe.shared_gate = flag_of(experts_block(), block, "shared_gate");
    if (moe.shared_gate && moe.shared_width == 0) block->fail("experts: shared_gate needs shared experts");
    return moe;
  }

  const YamlValue& block_;
  std::int64_t hidden_ = 0;
  bool bias_ = false;
  bool attention_bias_ = false;
  bool parallel_ = false;
  bool images_ = false;
  NormKind norm_ = NormKind::rmsnorm;
  Activation activation_ = Activation::swiglu;
};

}  // namespace

Model read_model_block(const YamlValue& block) { return BlockReader(block).read(); }

}  // namespace plumb
