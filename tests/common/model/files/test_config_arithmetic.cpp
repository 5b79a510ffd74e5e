// What a config.json says of arithmetic, by hand.
#include "common/model/files/config_arithmetic.hpp"

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/cost/profile/profile.hpp"
#include "common/model/files/config_json.hpp"
#include "common/model/files/model_json.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using nlohmann::json;

namespace {

const json small_llama = {{"model_type", "llama"},    {"hidden_act", "silu"},          {"vocab_size", 100},
                          {"hidden_size", 64},        {"intermediate_size", 96},       {"num_hidden_layers", 2},
                          {"num_attention_heads", 4}, {"max_position_embeddings", 128}};

json with(json config, const json& more) {
  config.update(more);
  return config;
}

Arithmetic arithmetic(const json& config) {
  return read_config_json(YamlValue::parse(config.dump(1), "config.json")).arithmetic;
}

std::string reading_error(const json& config) {
  try {
    (void)arithmetic(config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// Of a config that is to be computed as transformers does.
std::string refusal(const json& config) {
  try {
    require_computed({.model_type = "llama", .text = config.dump()}, "config.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the usual numbers are none, others are as written") {
  CHECK(arithmetic(small_llama) == Arithmetic{});
  CHECK(arithmetic(with(small_llama, {{"rms_norm_eps", 1e-6}, {"rope_theta", 10000.0}})) == Arithmetic{});
  CHECK(arithmetic(with(small_llama, {{"rms_norm_eps", 1e-5}, {"rope_theta", 500000}})) ==
        Arithmetic{.norm_epsilon = 1e-5, .rope_theta = 500000});
  const json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 64},  {"n_layer", 2},
                     {"n_head", 4},          {"n_positions", 16}, {"n_inner", 32}, {"layer_norm_epsilon", 1e-5}};
  CHECK(arithmetic(gpt2) == Arithmetic{});
  CHECK(arithmetic(with(gpt2, {{"layer_norm_epsilon", 1e-6}})).norm_epsilon == 1e-6);
  const json experts =
      with(small_llama, {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}});
  CHECK_FALSE(arithmetic(with(experts, {{"norm_topk_prob", true}})).raw_expert_shares);
  CHECK(arithmetic(with(experts, {{"norm_topk_prob", false}})).raw_expert_shares);
}

TEST_CASE("rotary positions in the words of transformers 4 and 5") {
  const Arithmetic expected{
      .rope_theta = 500000,
      .rope_scaling = RopeScaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 8192}};
  const json bands = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}};
  CHECK(arithmetic(with(small_llama, {{"rope_theta", 500000.0}, {"rope_scaling", bands}})) == expected);
  CHECK(arithmetic(with(small_llama, {{"rope_parameters", with(bands, {{"rope_theta", 500000.0}})}})) == expected);
  CHECK(arithmetic(with(small_llama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}})).rope_scaling ==
        RopeScaling{.factor = 2});
  CHECK(arithmetic(with(small_llama, {{"rope_scaling", nullptr}})) == Arithmetic{});
  CHECK(arithmetic(with(small_llama, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}})) == Arithmetic{});
  json gap = bands;
  gap.erase("low_freq_factor");
  CHECK_THAT(reading_error(with(small_llama, {{"rope_scaling", gap}})), ContainsSubstring("low_freq_factor"));
  CHECK_THAT(reading_error(with(small_llama, {{"rope_scaling", with(bands, {{"high_freq_factor", 0.5}})}})),
             ContainsSubstring("must be at least low_freq_factor"));
  // Llama 4 Scout: one limit between both bands.
  CHECK(arithmetic(with(small_llama, {{"rope_scaling", with(bands, {{"high_freq_factor", 1.0}})}}))
            .rope_scaling->high_frequency == 1.0);
  CHECK_THAT(reading_error(with(small_llama, {{"rms_norm_eps", -1}})), ContainsSubstring("rms_norm_eps"));
  CHECK_THAT(reading_error(with(small_llama, {{"rope_theta", 0}})), ContainsSubstring("rope_theta"));
}

TEST_CASE("a plan has them, and a plan without them is as before") {
  const auto written = [](const json& config) {
    return to_json(read_config_json(YamlValue::parse(config.dump(1), "config.json")));
  };
  const Json usual = written(small_llama);
  for (const char* const key : {"norm_epsilon", "rope_theta", "rope_scaling", "raw_expert_shares", "hugging_face"}) {
    CHECK_FALSE(usual.contains(key));
  }
  const json unusual =
      with(small_llama, {{"rms_norm_eps", 1e-5},
                         {"norm_topk_prob", false},
                         {"rope_parameters", {{"rope_type", "linear"}, {"factor", 1.5}, {"rope_theta", 300.5}}}});
  Json made = written(unusual);
  const Model model = model_from_json(JsonValue(made, "plan.json"));
  CHECK(model == read_config_json(YamlValue::parse(unusual.dump(1), "config.json")));
  CHECK(model.arithmetic.rope_scaling->factor == 1.5);
  made["norm_epsilon"] = 0;
  CHECK_THROWS_WITH(model_from_json(JsonValue(made, "plan.json")), ContainsSubstring("norm_epsilon"));
}

TEST_CASE("a profile holds for every arithmetic of its shapes") {
  const auto read = [](const json& config) {
    return read_config_json(YamlValue::parse(config.dump(1), "config.json"));
  };
  Model other = read(with(small_llama, {{"rms_norm_eps", 1e-5}, {"rope_theta", 500000}}));
  other.hugging_face = HuggingFaceConfig{.model_type = "llama", .text = "{}"};
  CHECK(model_digest(other) == model_digest(read(small_llama)));
  CHECK(model_digest(read(with(small_llama, {{"intermediate_size", 97}}))) != model_digest(read(small_llama)));
}

TEST_CASE("fields that plumb does not compute as transformers does are refused by name") {
  const json whole = with(small_llama, {{"rms_norm_eps", 1e-5}});
  CHECK(refusal(whole) == "no error");
  CHECK_THAT(refusal(small_llama), ContainsSubstring("'rms_norm_eps' or 'norm_eps' is missing"));
  CHECK_THAT(refusal(with(whole, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}})),
             ContainsSubstring("positions of the type 'yarn' are not computed"));
  CHECK_THAT(refusal(with(whole, {{"quantization_config", {{"bits", 4}}}})),
             ContainsSubstring("'quantization_config' is set"));
  CHECK_THAT(refusal(with(whole, {{"partial_rotary_factor", 0.5}})), ContainsSubstring("partial_rotary_factor"));
  const json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 64},  {"n_layer", 2},
                     {"n_head", 4},          {"n_positions", 16}, {"n_inner", 32}, {"layer_norm_epsilon", 1e-5}};
  CHECK(refusal(with(gpt2, {{"scale_attn_weights", true}})) == "no error");
  CHECK_THAT(refusal(with(gpt2, {{"scale_attn_by_inverse_layer_idx", true}})),
             ContainsSubstring("scale_attn_by_inverse_layer_idx"));
  const json experts = with(whole, {{"model_type", "qwen3_moe"},
                                    {"num_key_value_heads", 2},
                                    {"head_dim", 16},
                                    {"num_experts", 4},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 8}});
  CHECK_THAT(refusal(experts), ContainsSubstring("'norm_topk_prob' is missing"));
  CHECK(refusal(with(experts, {{"norm_topk_prob", false}})) == "no error");
}
