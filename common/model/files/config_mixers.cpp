#include "common/model/files/config_lacks.hpp"
#include "common/model/files/config_layers.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

// Reads the mixers of one file.
class MixerReader {
 public:
  MixerReader(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden)
      : fields_(fields), family_(family), hidden_(hidden) {
    // Files have these fields even if no mixer uses them.
    (void)fields_.find(head_names);
    (void)fields_.find(kv_head_names);
    (void)fields_.find(head_dim_names);
  }

  Mixer read(LayerWord word) {
    switch (word) {
      case LayerWord::full:
        return fields_.find({"kv_lora_rank"}) ? latent() : softmax(false);
      case LayerWord::sliding:
        return softmax(true);
      case LayerWord::linear:
        return linear();
      case LayerWord::mamba1:
        return mamba();
      case LayerWord::mamba2:
        return mamba2();
      case LayerWord::mlp:
      case LayerWord::moe:
        break;
    }
    return std::monostate{};
  }

 private:
  static inline const Names head_names = {"num_attention_heads", "n_head"};
  static inline const Names kv_head_names = {"num_key_value_heads"};
  static inline const Names head_dim_names = {"head_dim", "attention_head_dim"};

  std::int64_t heads() { return fields_.integer(head_names, limits::heads); }

  std::int64_t kv_heads() {
    if (family_.strict) return fields_.integer(kv_head_names, limits::heads);
    return fields_.optional_integer(kv_head_names, 1, limits::heads).value_or(heads());
  }

  std::int64_t head_dim() {
    const auto value = fields_.optional_integer(head_dim_names, 1, limits::head_dim);
    if (!value && leaves_out_head_dim()) return hidden_ / heads();
    if (family_.strict && !fields_.is_null(head_dim_names)) return fields_.integer(head_dim_names, limits::head_dim);
    if (!value && hidden_ % heads() != 0) {
      fields_.fail("the hidden size " + std::to_string(hidden_) + " is no multiple of " + std::to_string(heads()) +
                   " heads, and 'head_dim' is missing");
    }
    return value.value_or(hidden_ / heads());
  }

  // transformers 5 saves no head size for a class that rounds the hidden size over the heads down.
  bool leaves_out_head_dim() {
    const std::optional<YamlValue> version = fields_.find({"transformers_version"});
    return family_.derived_head_dim && version && version->text().starts_with("5.");
  }

  void set_biases(SoftmaxAttention& attention) {
    switch (family_.bias) {
      case BiasRule::by_field:
        attention.qkv_bias = attention.out_bias = fields_.flag({"attention_bias"}, family_.bias_default);
        break;
      case BiasRule::qkv_by_field:
        attention.qkv_bias = fields_.flag({"attention_bias"}, family_.bias_default);
        attention.out_bias = fields_.flag({"attention_out_bias"}, false);
        break;
      case BiasRule::qkv_only:
        attention.qkv_bias = fields_.flag({"qkv_bias", "attention_bias"}, true);
        break;
      case BiasRule::all:
        attention.qkv_bias = fields_.flag({"qkv_bias"}, true);
        attention.out_bias = true;
        break;
      case BiasRule::none_but_mlp:
        break;
    }
  }

  bool has_qk_norm() {
    const Names names = {"use_qk_norm"};
    if (family_.qk_norm_by_field) return fields_.flag(names, false);
    if (family_.weightless_qk_norm) (void)fields_.find(names);
    const std::optional<YamlValue> value = family_.qk_norm ? fields_.find(names) : std::nullopt;
    if (value && !value->boolean()) fields_.lack("attention of the family without its norms", "use_qk_norm");
    return family_.qk_norm;
  }

  // GPT-J's `rotary_dim`; the whole head if it is null.
  void set_rotary(SoftmaxAttention& attention) {
    const Names names = {"rotary_dim"};
    const auto dim = fields_.optional_integer(names, 2, attention.head_dim);
    if (dim && *dim % 2 != 0) fields_.require(names).fail("'rotary_dim' must be even");
    attention.rotary = {.dim = dim.value_or(attention.head_dim), .interleaved = true};
  }

  Mixer softmax(bool sliding) {
    SoftmaxAttention attention = {.heads = heads(), .kv_heads = kv_heads(), .head_dim = head_dim()};
    attention.value_dim = attention.head_dim;
    if (attention.heads % attention.kv_heads != 0) {
      fields_.find(kv_head_names)
          ->fail(std::to_string(attention.heads) + " heads are no multiple of " + std::to_string(attention.kv_heads) +
                 " KV heads");
    }
    if (sliding) {
      attention.window =
          fields_.integer({family_.chunked ? "attention_chunk_size" : "sliding_window"}, limits::positions);
    }
    attention.causal = !family_.vision;
    attention.qk_norm = has_qk_norm();
    attention.output_gate = family_.output_gate;
    if (fields_.flag({"attn_output_gate", "attention_output_gate"}, family_.output_gate) != family_.output_gate) {
      fields_.lack("an output gate of attention other than the family's", "attn_output_gate");
    }
    attention.sinks = family_.sinks;
    set_biases(attention);
    if (family_.rotates_pairs) set_rotary(attention);
    return attention;
  }

  Mixer latent() {
    fields_.refuse_if_set("attention_bias", "biases of latent attention");
    return LatentAttention{.heads = heads(),
                           .q_lora_rank = fields_.optional_integer({"q_lora_rank"}, 1, limits::hidden),
                           .kv_lora_rank = fields_.integer({"kv_lora_rank"}, limits::hidden),
                           .nope_dim = fields_.integer({"qk_nope_head_dim"}, limits::head_dim),
                           .rope_dim = fields_.integer({"qk_rope_head_dim"}, limits::head_dim),
                           .value_dim = fields_.integer({"v_head_dim"}, limits::head_dim)};
  }

  Mixer linear() {
    if (family_.recurrence == Recurrence::lightning) {
      Lightning result = {.heads = heads(), .head_dim = head_dim()};
      result.block = fields_.optional_integer({"block_size", "block"}, 1, limits::chunk).value_or(result.block);
      return result;
    }
    if (const auto config = fields_.find({"linear_attn_config"})) return channel_gated_delta(*config);
    if (fields_.find({"linear_num_heads"})) {
      return ChannelGatedDelta{.heads = fields_.integer({"linear_num_heads"}, limits::heads),
                               .head_dim = fields_.integer({"linear_head_dim"}, limits::head_dim),
                               .conv_kernel = fields_.integer({"linear_conv_kernel_dim"}, limits::kernel)};
    }
    GatedDelta delta = {.key_heads = fields_.integer({"linear_num_key_heads"}, limits::heads),
                        .value_heads = fields_.integer({"linear_num_value_heads"}, limits::heads),
                        .key_dim = fields_.integer({"linear_key_head_dim"}, limits::head_dim),
                        .value_dim = fields_.integer({"linear_value_head_dim"}, limits::head_dim),
                        .conv_kernel = fields_.integer({"linear_conv_kernel_dim"}, limits::kernel)};
    if (delta.value_heads % delta.key_heads != 0) {
      fields_.fail("'linear_num_value_heads' must be a multiple of 'linear_num_key_heads'");
    }
    return delta;
  }

  Mixer channel_gated_delta(const YamlValue& config) {
    const auto full_rank = config.find("use_full_rank_gate");
    if (full_rank && full_rank->boolean())
      fields_.lack(lacks::full_rank_gates, "linear_attn_config.use_full_rank_gate");
    config.check_keys({"full_attn_layers", "kda_layers", "head_dim", "num_heads", "short_conv_kernel_size",
                       "use_full_rank_gate", "gate_lower_bound"});
    return ChannelGatedDelta{.heads = config.require("num_heads").integer(1, limits::heads),
                             .head_dim = config.require("head_dim").integer(1, limits::head_dim),
                             .conv_kernel = config.require("short_conv_kernel_size").integer(1, limits::kernel)};
  }

  Mixer mamba() {
    Mamba result;
    result.inner = hidden_ * fields_.integer({"mamba_expand"}, limits::expand);
    result.state = fields_.integer({"mamba_d_state"}, limits::head_dim);
    result.conv_kernel = fields_.integer({"mamba_d_conv"}, limits::kernel);
    const auto rank = fields_.find({"mamba_dt_rank"});
    const bool automatic = !rank || (rank->is_text() && rank->text() == "auto");
    result.dt_rank = automatic ? (hidden_ + 15) / 16 : rank->integer(1, limits::hidden);
    result.conv_bias = fields_.flag({"mamba_conv_bias"}, true);
    result.proj_bias = fields_.flag({"mamba_proj_bias"}, false);
    result.inner_norms = family_.inner_norms;
    return result;
  }

  Mixer mamba2() {
    fields_.refuse_if_set("use_bias", "biases of Mamba-2 projections");
    fields_.refuse_if_set("mamba_proj_bias", "biases of Mamba-2 projections");
    (void)fields_.find({"expand", "mamba_expand"});  // the inner width is heads times head size
    Mamba2 result;
    result.heads = fields_.integer({"mamba_num_heads", "mamba_n_heads"}, limits::heads);
    result.head_dim = fields_.integer({"mamba_head_dim", "mamba_d_head"}, limits::head_dim);
    result.groups = fields_.integer({"n_groups", "mamba_n_groups"}, limits::heads);
    result.state = fields_.integer({"ssm_state_size", "mamba_d_state"}, limits::head_dim);
    result.conv_kernel = fields_.integer({"conv_kernel", "mamba_d_conv"}, limits::kernel);
    result.chunk =
        fields_.optional_integer({"chunk_size", "mamba_chunk_size"}, 1, limits::chunk).value_or(result.chunk);
    result.conv_bias = fields_.flag({"use_conv_bias", "mamba_conv_bias"}, true);
    if (result.heads % result.groups != 0) fields_.fail("the Mamba-2 heads must be a multiple of the groups");
    return result;
  }

  ConfigFields& fields_;
  const ModelFamily& family_;
  std::int64_t hidden_;
};

}  // namespace

std::vector<Mixer> read_mixers(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden,
                               const std::vector<LayerWord>& words) {
  MixerReader reader(fields, family, hidden);
  std::vector<std::pair<LayerWord, Mixer>> known;
  std::vector<Mixer> mixers;
  for (const LayerWord word : words) {
    std::size_t i = 0;
    while (i < known.size() && known[i].first != word) ++i;
    if (i == known.size()) known.emplace_back(word, reader.read(word));
    mixers.push_back(known[i].second);
  }
  (void)fields.find({"attention_bias"});  // no layer may have use for it
  return mixers;
}

}  // namespace plumb
