#include "common/model/files/config_family.hpp"

#include <map>
#include <vector>

namespace plumb {
namespace {

using Families = std::vector<ModelFamily>;

Families gpt_families() {
  const ModelFamily gpt = {.activation = Activation::gelu, .bias = BiasRule::all, .norm = NormKind::layernorm};
  ModelFamily gpt2 = gpt;
  gpt2.name = "gpt2";
  gpt2.tied = true;
  gpt2.positions = Positions::learned;
  ModelFamily gptj = gpt;
  gptj.name = "gptj";
  gptj.bias = BiasRule::none_but_mlp;
  gptj.norms = 1;
  gptj.parallel = true;
  gptj.rotates_pairs = true;
  ModelFamily vit = gpt;
  vit.name = "vit";
  vit.vision = true;
  vit.activation = Activation::gelu_erf;
  vit.positions = Positions::learned;
  return {gpt2, gptj, vit};
}

Families llama_families() {
  const ModelFamily deepseek = {.strict = true, .dense_first = true, .own_expert_width = true};
  Families all = {{.name = "llama"}, {.name = "mistral"}, {.name = "mixtral"}};
  for (const char* name : {"deepseek_v2", "deepseek_v3", "kimi_linear"}) {
    all.push_back(deepseek);
    all.back().name = name;
  }
  all.back().layer_list = true;
  all.back().positions = Positions::none;
  all.push_back(
      {.name = "gpt_oss", .bias_default = true, .sinks = true, .moe_bias = true, .strict = true, .layer_list = true});
  return all;
}

Families qwen_families() {
  return {{.name = "qwen2", .bias = BiasRule::qkv_only, .window_needs_switch = true},
          {.name = "qwen2_moe",
           .bias = BiasRule::qkv_only,
           .shared_gate = true,
           .own_expert_width = true,
           .window_needs_switch = true},
          {.name = "qwen3", .qk_norm = true, .strict = true, .window_needs_switch = true},
          {.name = "qwen3_moe", .qk_norm = true, .strict = true, .own_expert_width = true, .window_needs_switch = true},
          // The released Qwen3-Next weights have one MTP module, which its fields do not mention.
          {.name = "qwen3_next",
           .qk_norm = true,
           .output_gate = true,
           .shared_gate = true,
           .strict = true,
           .layer_list = true,
           .own_expert_width = true,
           .window_needs_switch = true,
           .mtp_modules = 1}};
}

Families gemma_families() {
  const ModelFamily gemma = {.name = "gemma", .activation = Activation::geglu, .tied = true, .strict = true};
  ModelFamily gemma2 = gemma;
  gemma2.name = "gemma2";
  gemma2.norms = 4;
  gemma2.window_pattern = 2;
  ModelFamily gemma3 = gemma;
  gemma3.name = "gemma3";
  gemma3.norms = 4;
  gemma3.qk_norm = gemma3.layer_list = true;
  ModelFamily gemma3_text = gemma3;
  gemma3_text.name = "gemma3_text";
  return {gemma, gemma2, gemma3, gemma3_text};
}

Families hybrid_families() {
  Families all = {{.name = "jamba", .positions = Positions::none, .layer_list = true, .inner_norms = true},
                  {.name = "nemotron_h",
                   .activation = Activation::relu2,
                   .norms = 1,
                   .positions = Positions::none,
                   .strict = true,
                   .layer_list = true,
                   .own_expert_width = true,
                   .one_mixer_per_layer = true}};
  for (const char* name : {"minimax", "minimax_text_01", "minimax_m1"}) {
    all.push_back({.name = name, .lightning = true, .strict = true, .layer_list = true});
  }
  return all;
}

const std::map<std::string, ModelFamily>& families() {
  static const std::map<std::string, ModelFamily> all = [] {
    std::map<std::string, ModelFamily> map;
    for (const Families& group :
         {gpt_families(), llama_families(), qwen_families(), gemma_families(), hybrid_families()}) {
      for (const ModelFamily& family : group) map.emplace(family.name, family);
    }
    return map;
  }();
  return all;
}

// Fields of which the shapes depend on the family.
const Names telling = {
    "linear_num_key_heads", "attn_type_list", "linear_attn_config", "layers_block_type", "mamba_d_state",
    "ssm_state_size",       "n_embd",         "qkv_bias",           "image_size",        "sliding_window_pattern"};

}  // namespace

ModelFamily read_family(ConfigFields& fields) {
  if (const auto type = fields.find({"model_type"})) {
    const auto found = families().find(type->text());
    if (found != families().end()) return found->second;
    Names names;
    for (const auto& [name, family] : families()) names.push_back(name);
    type->fail("the model_type '" + type->text() + "' is not known", did_you_mean(type->text(), names));
  }
  for (const std::string& name : telling) {
    if (fields.find({name})) {
      fields.fail("the field 'model_type' is missing, and with '" + name + "' the shapes depend on it");
    }
  }
  const auto activation = fields.find({"hidden_act", "hidden_activation"});
  if (!activation || (activation->text() != "silu" && activation->text() != "swish")) {
    fields.fail("the field 'model_type' is missing, and without it only files with hidden_act 'silu' are understood");
  }
  return {.name = "llama"};
}

}  // namespace plumb
