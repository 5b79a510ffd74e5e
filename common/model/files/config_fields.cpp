#include "common/model/files/config_fields.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace plumb {
namespace {

// Fields that change no shape: running, sampling, initialisation, scaling, loading.
constexpr auto harmless = std::to_array<std::string_view>({"architectures",
                                                           "attention_multiplier",
                                                           "attention_value_scale",
                                                           "attn_implementation",
                                                           "attn_logit_softcapping",
                                                           "attn_scale",
                                                           "attn_temperature_tuning",
                                                           "auto_map",
                                                           "aux_loss_alpha",
                                                           "bad_words_ids",
                                                           "cache_implementation",
                                                           "chunk_size_feed_forward",
                                                           "clean_up_tokenization_spaces",
                                                           "cross_attention_hidden_size",
                                                           "diversity_penalty",
                                                           "do_sample",
                                                           "dtype",
                                                           "early_stopping",
                                                           "embedding_initializer_range",
                                                           "enable_moe_fp32_combine",
                                                           "embedding_multiplier",
                                                           "encoder_no_repeat_ngram_size",
                                                           "encoder_stride",
                                                           "ep_size",
                                                           "expert_dtype",
                                                           "exponential_decay_length_penalty",
                                                           "final_logit_softcapping",
                                                           "finetuning_task",
                                                           "floor_scale",
                                                           "forced_bos_token_id",
                                                           "forced_eos_token_id",
                                                           "gradient_checkpointing",
                                                           "id2label",
                                                           "init_method",
                                                           "initial_context_length",
                                                           "initializer_factor",
                                                           "initializer_range",
                                                           "is_decoder",
                                                           "keys_to_ignore_at_inference",
                                                           "label2id",
                                                           "layer_norm_eps",
                                                           "layer_norm_epsilon",
                                                           "length_penalty",
                                                           "logits_scaling",
                                                           "mamba_hidden_act",
                                                           "max_length",
                                                           "min_length",
                                                           "mla_use_nope",
                                                           "model_max_length",
                                                           "moe_renormalize",
                                                           "moe_router_activation_func",
                                                           "moe_router_dtype",
                                                           "moe_shared_expert_overlap",
                                                           "n_ctx",
                                                           "n_group",
                                                           "no_repeat_ngram_size",
                                                           "no_rope_layer_interval",
                                                           "no_rope_layers",
                                                           "norm_eps",
                                                           "norm_topk_prob",
                                                           "normalization_function",
                                                           "num_beam_groups",
                                                           "num_beams",
                                                           "num_expert_group",
                                                           "num_logits_to_keep",
                                                           "num_return_sequences",
                                                           "original_max_position_embeddings",
                                                           "output_attentions",
                                                           "output_gate_type",
                                                           "output_hidden_states",
                                                           "output_router_logits",
                                                           "output_scores",
                                                           "partial_rotary_factor",
                                                           "pooler_act",
                                                           "pooler_output_size",
                                                           "postnorm",
                                                           "prefix",
                                                           "pretraining_tp",
                                                           "problem_type",
                                                           "pruned_heads",
                                                           "qk_head_dim",
                                                           "quantization",
                                                           "quantization_config",
                                                           "query_pre_attn_scalar",
                                                           "remove_invalid_values",
                                                           "reorder_and_upcast_attn",
                                                           "repetition_penalty",
                                                           "rescale_prenorm_residual",
                                                           "residual_in_fp32",
                                                           "residual_multiplier",
                                                           "return_dict",
                                                           "return_dict_in_generate",
                                                           "rms_norm_eps",
                                                           "rotary",
                                                           "rotary_dim",
                                                           "routed_scaling_factor",
                                                           "router_aux_loss_coef",
                                                           "router_scaling_factor",
                                                           "router_jitter_noise",
                                                           "scale_attn_by_inverse_layer_idx",
                                                           "scale_attn_weights",
                                                           "scoring_func",
                                                           "seq_aux",
                                                           "shared_moe_mode",
                                                           "sliding_window_size",
                                                           "suppress_tokens",
                                                           "swiglu_limit",
                                                           "task_specific_params",
                                                           "temperature",
                                                           "tf_legacy_loss",
                                                           "tie_encoder_decoder",
                                                           "tokenizer_class",
                                                           "top_k",
                                                           "top_p",
                                                           "topk_group",
                                                           "topk_method",
                                                           "torch_dtype",
                                                           "torchscript",
                                                           "transformers_version",
                                                           "typical_p",
                                                           "use_associative_scan",
                                                           "use_bfloat16",
                                                           "use_cache",
                                                           "use_grouped_topk",
                                                           "use_mamba_kernels",
                                                           "use_mambapy",
                                                           "use_routing_bias"});

constexpr auto harmless_beginnings = std::to_array<std::string_view>(
    {"_", "rope_", "summary_", "time_step_", "layernorm_", "generation_", "mamba_ssm_", "unsloth_"});
constexpr auto harmless_endings =
    std::to_array<std::string_view>({"_token_id", "_token_ids", "_token_index", "_dropout", "_dropout_prob", "_pdrop",
                                     "_alpha", "_beta", "_alpha_factor", "_beta_factor"});

bool is_harmless(std::string_view key) {
  const auto begins = [&](std::string_view part) { return key.starts_with(part); };
  const auto ends = [&](std::string_view part) { return key.ends_with(part); };
  return std::find(harmless.begin(), harmless.end(), key) != harmless.end() ||
         std::any_of(harmless_beginnings.begin(), harmless_beginnings.end(), begins) ||
         std::any_of(harmless_endings.begin(), harmless_endings.end(), ends);
}

// Fields that change nothing at one value. Families that read such a field say themselves what it means.
struct Neutral {
  std::string_view field;
  std::string_view value;
};
constexpr Neutral neutral[] = {
    {"attention_bias", "false"},   {"attention_out_bias", "false"}, {"attention_output_gate", "false"},
    {"attn_output_gate", "false"}, {"qkv_bias", "false"},           {"use_bias", "false"},
    {"use_mrope", "false"},        {"use_qk_norm", "false"},        {"mlp_bias", "false"}};

bool is_neutral(std::string_view key, const YamlValue& value) {
  return value.is_scalar() && std::any_of(std::begin(neutral), std::end(neutral), [&](const Neutral& entry) {
           return entry.field == key && entry.value == value.text();
         });
}

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

std::string either(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : " or '") + name + "'";
  return text;
}

}  // namespace

std::optional<YamlValue> ConfigFields::find(const Names& names) {
  read_.insert(names.begin(), names.end());
  for (const std::string& name : names) {
    std::optional<YamlValue> value = file_.find(name);
    if (value && !value->is_null()) return value;
  }
  return std::nullopt;
}

YamlValue ConfigFields::require(const Names& names) {
  std::optional<YamlValue> value = find(names);
  if (!value) fail("the field " + either(names) + " is missing", "defaults of other tools are no released model");
  return *std::move(value);
}

std::int64_t ConfigFields::integer(const Names& names, std::int64_t most) { return require(names).integer(1, most); }

std::optional<std::int64_t> ConfigFields::optional_integer(const Names& names, std::int64_t least, std::int64_t most) {
  const std::optional<YamlValue> value = find(names);
  return value ? std::optional(value->integer(least, most)) : std::nullopt;
}

bool ConfigFields::flag(const Names& names, bool fallback) {
  const std::optional<YamlValue> value = find(names);
  return value ? value->boolean() : fallback;
}

bool ConfigFields::is_null(const Names& names) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::optional<YamlValue> value = file_.find(name);
    return value && value->is_null();
  });
}

void ConfigFields::refuse_if_set(const std::string& name, const std::string& why) {
  const std::optional<YamlValue> value = find({name});
  if (value && value->boolean()) lack(why, name);
}

void ConfigFields::lack(const std::string& feature, const std::string& field, const std::string& hint) {
  lack_hint_ = lacks_.empty() ? hint : "";
  auto found = std::find_if(lacks_.begin(), lacks_.end(), [&](const auto& entry) { return entry.first == feature; });
  if (found == lacks_.end()) found = lacks_.insert(lacks_.end(), {feature, {}});
  if (!field.empty()) found->second.push_back(field);
}

std::string ConfigFields::lacks_text() const {
  std::string text;
  for (const auto& [feature, names] : lacks_) {
    text += (text.empty() ? "" : "; ") + feature;
    if (!names.empty()) text += " (" + joined(names) + ")";
  }
  return text;
}

Names ConfigFields::unread() const {
  Names names;
  for (const std::string& key : file_.keys()) {
    if (read_.count(key) == 1 || is_harmless(key)) continue;
    const std::optional<YamlValue> value = file_.find(key);
    if (!value->is_null() && !is_neutral(key, *value)) names.push_back(key);
  }
  return names;
}

void ConfigFields::check_lacks(const std::string& family) const {
  if (has_lacks()) fail("plumb cannot state this " + family + " model, it lacks: " + lacks_text(), lack_hint_);
}

void ConfigFields::check(const std::string& family) const {
  const Names left = unread();
  if (has_lacks() && !left.empty()) {
    fail("plumb cannot state this " + family + " model, it lacks: " + lacks_text() +
         "; fields that are not understood: " + joined(left));
  }
  check_lacks(family);
  if (left.empty()) return;
  const std::string near = did_you_mean(left.front(), {read_.begin(), read_.end()});
  const bool one = left.size() == 1;
  file_.find(left.front())
      ->fail((one ? "the field '" + left.front() + "' is" : "the fields " + joined(left) + " are") +
                 " not understood, and may change shapes",
             near.starts_with("did you mean") ? near
             : one                            ? "remove it if it changes no shape"
                                              : "remove those that change no shape");
}

}  // namespace plumb
