#include "common/model/files/config_arithmetic.hpp"

#include <algorithm>

#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

constexpr double most_theta = 1e12;
constexpr double most_factor = 1e6;
constexpr double least_number = 1e-30;

Names epsilon_names(NormKind kind) {
  if (kind == NormKind::rmsnorm) return {"rms_norm_eps", "norm_eps"};
  return {"layer_norm_epsilon", "layer_norm_eps"};
}

// transformers 5 writes one block, `rope_parameters`; before, `rope_theta` stood alone and `rope_scaling` beside it.
struct RopeFields {
  std::optional<YamlValue> theta;
  std::optional<YamlValue> scaling;
  bool by_layer_type = false;  // a block for each: not read
};

RopeFields rope_fields(ConfigFields& fields) {
  const std::optional<YamlValue> old_theta = fields.find({"rope_theta"});
  const std::optional<YamlValue> old_scaling = fields.find({"rope_scaling"});
  const std::optional<YamlValue> block = fields.find({"rope_parameters"});
  if (!block || !block->is_map()) return {.theta = old_theta, .scaling = old_scaling};
  for (const std::string& key : block->keys()) {
    if (block->find(key)->is_map()) return {.theta = std::nullopt, .scaling = std::nullopt, .by_layer_type = true};
  }
  const std::optional<YamlValue> theta = block->find("rope_theta");
  return {.theta = theta ? theta : old_theta, .scaling = block};
}

std::string rope_type(const std::optional<YamlValue>& scaling) {
  if (!scaling || !scaling->is_map()) return "default";
  for (const char* const key : {"rope_type", "type"}) {
    const std::optional<YamlValue> value = scaling->find(key);
    if (value && !value->is_null()) return value->text();
  }
  return "default";
}

std::optional<RopeScaling> read_scaling(const std::optional<YamlValue>& scaling) {
  const std::string type = rope_type(scaling);
  if (type != "linear" && type != "llama3") return std::nullopt;
  RopeScaling read{.factor = scaling->require("factor").number(least_number, most_factor)};
  if (type == "linear") return read;
  read.low_frequency = scaling->require("low_freq_factor").number(least_number, most_factor);
  const YamlValue high = scaling->require("high_freq_factor");
  read.high_frequency = high.number(least_number, most_factor);
  if (*read.high_frequency < *read.low_frequency) high.fail(high.path() + ": must be at least low_freq_factor");
  read.original_positions = scaling->require("original_max_position_embeddings").integer(1, limits::positions);
  return read;
}

bool has_experts_without_rule(const ModelFamily& family) {
  return family.name == "qwen2_moe" || family.name == "qwen3_moe" || family.name == "qwen3_next";
}

void refuse_unless(ConfigFields& fields, const char* name, const std::string& expected) {
  const std::optional<YamlValue> value = fields.find({name});
  if (value && value->text() != expected) {
    value->fail("'" + std::string(name) + "' is " + value->text() + ", computed is only " + expected);
  }
}

}  // namespace

Arithmetic read_arithmetic(ConfigFields& fields, const ModelFamily& family) {
  Arithmetic read;
  const auto unless = [](double value, double usual) { return value == usual ? std::nullopt : std::optional(value); };
  if (const auto epsilon = fields.find(epsilon_names(family.norm))) {
    read.norm_epsilon = unless(epsilon->number(least_number, 1), usual_epsilon(family.norm));
  }
  const RopeFields rope = rope_fields(fields);
  if (family.positions == Positions::rope) {
    if (rope.theta && !rope.theta->is_null()) {
      read.rope_theta = unless(rope.theta->number(least_number, most_theta), usual_rope_theta);
    }
    read.rope_scaling = read_scaling(rope.scaling);
  }
  read.raw_expert_shares = !fields.flag({"norm_topk_prob"}, true);
  return read;
}

void require_computed_as_written(ConfigFields& fields, const ModelFamily& family) {
  const RopeFields rope = rope_fields(fields);
  const std::string type = rope_type(rope.scaling);
  if (rope.by_layer_type || (type != "default" && type != "linear" && type != "llama3")) {
    fields.fail(rope.by_layer_type ? "'rope_parameters' differ by the type of layer, which is not computed"
                                   : "positions of the type '" + type + "' are not computed",
                "computed: rope_type default, linear and llama3");
  }
  refuse_unless(fields, "scale_attn_by_inverse_layer_idx", "false");
  refuse_unless(fields, "scale_attn_weights", "true");
  for (const char* const name : {"attn_logit_softcapping", "final_logit_softcapping", "quantization_config", "clip_qkv",
                                 "attention_multiplier"}) {
    if (const auto value = fields.find({name}))
      value->fail("'" + std::string(name) + "' is set, which is not computed");
  }
  if (const auto part = fields.find({"partial_rotary_factor"}); part && part->number(0, 1) != 1) {
    part->fail("'partial_rotary_factor' is below 1, and the whole head is rotated");
  }
  (void)fields.require(epsilon_names(family.norm));
  if (family.name == "mixtral" && !rope.theta) (void)fields.require({"rope_theta"});
  if (has_experts_without_rule(family)) (void)fields.require({"norm_topk_prob"});
}

}  // namespace plumb
