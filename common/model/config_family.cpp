#include "common/model/config_family.hpp"

#include <algorithm>
#include <map>

namespace plumb {
namespace {

Family gpt(const std::string& name) {
  return {.name = name, .activation = Activation::gelu, .bias = BiasRule::all, .norm = NormKind::layernorm};
}

const std::map<std::string, Family>& families() {
  static const std::map<std::string, Family> all = [] {
    std::map<std::string, Family> map;
    const auto add = [&](Family family) { map.emplace(family.name, std::move(family)); };
    Family gpt2 = gpt("gpt2");
    gpt2.tied = gpt2.learned_positions = true;
    add(gpt2);
    Family gptj = gpt("gptj");
    gptj.bias = BiasRule::none_but_mlp;
    gptj.norms = 1;
    gptj.parallel = true;
    add(gptj);
    Family vit = gpt("vit");
    vit.vision = vit.learned_positions = true;
    add(vit);

    for (const char* name : {"llama", "mistral", "mixtral"}) add({.name = name});
    for (const char* name : {"deepseek_v2", "deepseek_v3"}) {
      add({.name = name, .strict = true, .dense_first = true, .own_expert_width = true});
    }
    add({.name = "kimi_linear", .strict = true, .layer_list = true, .dense_first = true, .own_expert_width = true});

    add({.name = "qwen2", .bias = BiasRule::qkv_only, .window_needs_switch = true});
    add({.name = "qwen2_moe",
         .bias = BiasRule::qkv_only,
         .shared_gate = true,
         .own_expert_width = true,
         .window_needs_switch = true});
    add({.name = "qwen3", .qk_norm = true, .strict = true, .window_needs_switch = true});
    add({.name = "qwen3_moe", .qk_norm = true, .strict = true, .own_expert_width = true, .window_needs_switch = true});
    // The released Qwen3-Next weights have one MTP module, which its fields do not mention.
    add({.name = "qwen3_next",
         .qk_norm = true,
         .output_gate = true,
         .shared_gate = true,
         .strict = true,
         .layer_list = true,
         .own_expert_width = true,
         .window_needs_switch = true,
         .mtp_modules = 1});

    add({.name = "gemma", .activation = Activation::geglu, .tied = true, .strict = true});
    add({.name = "gemma2",
         .activation = Activation::geglu,
         .tied = true,
         .norms = 4,
         .strict = true,
         .window_pattern = 2});
    for (const char* name : {"gemma3", "gemma3_text"}) {
      add({.name = name,
           .activation = Activation::geglu,
           .tied = true,
           .norms = 4,
           .qk_norm = true,
           .strict = true,
           .layer_list = true});
    }
    add({.name = "gpt_oss", .bias_default = true, .sinks = true, .moe_bias = true, .strict = true, .layer_list = true});
    for (const char* name : {"minimax", "minimax_text_01", "minimax_m1"}) {
      add({.name = name, .lightning = true, .strict = true, .layer_list = true});
    }
    add({.name = "jamba", .layer_list = true, .inner_norms = true});
    add({.name = "nemotron_h",
         .activation = Activation::relu2,
         .norms = 1,
         .strict = true,
         .layer_list = true,
         .own_expert_width = true,
         .one_mixer_per_layer = true});
    return map;
  }();
  return all;
}

// Fields of which the shapes depend on the family.
const Names telling = {
    "linear_num_key_heads", "attn_type_list", "linear_attn_config", "layers_block_type", "mamba_d_state",
    "ssm_state_size",       "n_embd",         "qkv_bias",           "image_size",        "sliding_window_pattern"};

}  // namespace

Family read_family(ConfigFields& fields) {
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
