#include "common/model/files/config_family.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "common/model/files/config_lacks.hpp"

namespace plumb {
namespace {

using Families = std::vector<ModelFamily>;

// The same family under several names.
Families named(const Names& names, ModelFamily family) {
  Families all;
  for (const std::string& name : names) {
    family.name = name;
    all.push_back(family);
  }
  return all;
}

Families joined(const std::vector<Families>& groups) {
  Families all;
  for (const Families& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

constexpr const char* no_mla = "no: `mla`, and multi-token prediction";
constexpr const char* groups_left_out = "groups of experts (`n_group`, `topk_group`)";
constexpr const char* partial_left_out = "`partial_rotary_factor`: a run rotates the whole head";

Families gpt_families() {
  const ModelFamily gpt = {.activation = Activation::gelu, .bias = BiasRule::all, .norm = NormKind::layernorm};
  ModelFamily gpt2 = gpt;
  gpt2.words = {"learned positions, biases, LayerNorm, tied", "width 4 · `n_embd` without `n_inner`", "yes"};
  gpt2.tied = true;
  gpt2.positions = Positions::learned;
  ModelFamily gptj = gpt;
  gptj.words = {"parallel layers, `rotary_dim` in pairs, biases of MLP and head", "", "yes"};
  gptj.bias = BiasRule::none_but_mlp;
  gptj.norms = 1;
  gptj.parallel = true;
  gptj.rotates_pairs = true;
  ModelFamily vit = gpt;
  vit.words = {"images; `num_labels`, else the entries of `id2label`", "the pooler", "yes"};
  vit.vision = true;
  vit.activation = Activation::gelu_erf;
  vit.positions = Positions::learned;
  return joined({named({"gpt2"}, gpt2), named({"gptj"}, gptj), named({"vit"}, vit)});
}

Families llama_families() {
  const ModelFamily llama = {
      .words = {"`attention_bias`, `mlp_bias`; a `sliding_window` is that of all layers", "", "yes"}};
  ModelFamily granite = llama;
  granite.words = {"as `llama`", "multipliers of embedding, attention, residual and logits", "yes"};
  ModelFamily ernie = llama;
  ernie.words = {"as `llama`, tied", "", "yes"};
  ernie.tied = true;
  ModelFamily smollm3 = llama;
  smollm3.words = {"as `llama`, windows by `layer_types`", "`no_rope_layers`: a run rotates all layers", "yes"};
  smollm3.tied = true;
  smollm3.window_needs_switch = true;
  const ModelFamily seed_oss = {
      .words = {"as `llama`; `attention_bias` of q, k and v, `attention_out_bias`", "", "yes"},
      .bias = BiasRule::qkv_by_field,
      .bias_default = true};
  const ModelFamily arcee = {.words = {"as `llama` with a squared-ReLU MLP", "", "no: squared ReLU"},
                             .activation = Activation::relu2};
  const ModelFamily llama4 = {
      .words = {"experts on every `interleave_moe_layer_step`-th layer, one shared expert; chunks of "
                "`attention_chunk_size` count as a sliding window of that size",
                "the weightless norm of q and k, temperature tuning; a run rotates all layers", "yes"},
      .weightless_qk_norm = true,
      .strict = true,
      .shared_always = true,
      .chunked = true,
      .full_every = 4};
  return joined({named({"llama", "mistral", "mixtral", "ministral3", "phi3", "helium"}, llama),
                 named({"granite", "granitemoe", "granitemoeshared"}, granite), named({"ernie4_5"}, ernie),
                 named({"smollm3"}, smollm3), named({"seed_oss"}, seed_oss), named({"arcee"}, arcee),
                 named({"llama4", "llama4_text"}, llama4)});
}

Families deepseek_families() {
  ModelFamily deepseek = {.words = {"`mla`, `first_k_dense_replace` or `mlp_layer_types`, shared experts, "
                                    "`num_nextn_predict_layers`",
                                    groups_left_out, no_mla},
                          .strict = true,
                          .dense_first = true,
                          .own_expert_width = true};
  ModelFamily kimi_linear = deepseek;
  kimi_linear.words = {"`kda` and `mla` by `linear_attn_config`, or by `layer_types`; no positions", groups_left_out,
                       "no: `kda` and `mla`"};
  kimi_linear.layer_list = true;
  kimi_linear.positions = Positions::none;
  const ModelFamily youtu = {.words = {"`mla` and dense MLPs, tied", "", "no: `mla`"}, .tied = true};
  return joined({named({"deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"}, deepseek), named({"youtu"}, youtu),
                 named({"kimi_linear"}, kimi_linear)});
}

Families gpt_oss_families() {
  return named({"gpt_oss"},
               {.words = {"`layer_types`, sinks, biases of router and experts", "`swiglu_limit`", "no: sinks"},
                .bias_default = true,
                .sinks = true,
                .moe_bias = true,
                .strict = true,
                .layer_list = true});
}

Families glm_families() {
  const ModelFamily glm = {.words = {"`attention_bias` of q, k and v", partial_left_out, "yes"},
                           .bias = BiasRule::qkv_by_field,
                           .strict = true};
  ModelFamily glm4 = glm;
  glm4.words = {"as `glm`, four norms a layer", partial_left_out, "no: four norms"};
  glm4.norms = 4;
  ModelFamily glm4v = glm4;
  glm4v.words = {"as `glm4`, with biases of q, k and v", "", "no: four norms"};
  glm4v.bias_default = true;
  glm4v.derived_head_dim = true;
  glm4v.strict = false;
  const ModelFamily glm4_moe = {
      .words = {"`use_qk_norm`, `attention_bias` of q, k and v, `first_k_dense_replace`, shared experts, "
                "`num_nextn_predict_layers`",
                partial_left_out, "with `num_nextn_predict_layers: 0`"},
      .bias = BiasRule::qkv_by_field,
      .qk_norm_by_field = true,
      .derived_head_dim = true,
      .dense_first = true,
      .own_expert_width = true};
  return joined({named({"glm"}, glm), named({"glm4"}, glm4), named({"glm4v", "glm4v_text"}, glm4v),
                 named({"glm4_moe", "glm4v_moe_text"}, glm4_moe)});
}

Families qwen_families() {
  const ModelFamily qwen2 = {
      .words = {"biases on q, k and v; a window only with `use_sliding_window`, from layer `max_window_layers` on", "",
                "yes"},
      .bias = BiasRule::qkv_only,
      .text_beside_vision = true,
      .window_needs_switch = true};
  ModelFamily qwen2_moe = qwen2;
  qwen2_moe.shared_gate = true;
  qwen2_moe.own_expert_width = true;
  ModelFamily mimo = qwen2;
  mimo.words = {"as `qwen2`, `num_nextn_predict_layers`", "", "with `num_nextn_predict_layers: 0`"};
  const ModelFamily qwen3 = {.words = {"the same windows, norms on queries and keys", "", "yes"},
                             .qk_norm = true,
                             .strict = true,
                             .window_needs_switch = true};
  ModelFamily qwen3_moe = qwen3;
  qwen3_moe.own_expert_width = true;
  qwen3_moe.derived_head_dim = true;
  const ModelFamily hy_v3 = {
      .words = {"norms on queries and keys, dense layers by `mlp_layer_types`, shared experts", "", "yes"},
      .qk_norm = true,
      .strict = true,
      .own_expert_width = true};
  const ModelFamily solar_open = {.words = {"`use_qk_norm`, experts in every layer, shared experts", "", "yes"},
                                  .qk_norm_by_field = true,
                                  .strict = true,
                                  .own_expert_width = true};
  const ModelFamily exaone = {
      .words = {"norms on queries and keys, windows by `layer_types`, dense layers by `mlp_layer_types`",
                "the place of the norms: behind mixer and MLP; a run rotates all layers", "yes"},
      .qk_norm = true,
      .layer_list = true};
  ModelFamily qwen3_next = qwen3_moe;
  qwen3_next.derived_head_dim = false;
  qwen3_next.words = {
      "`linear` and gated full attention by `layer_types` or `full_attention_interval`; shared expert "
      "with a gate",
      "multi-token prediction, unless `num_nextn_predict_layers` states it", "with `num_nextn_predict_layers: 0`"};
  qwen3_next.output_gate = true;
  qwen3_next.shared_gate = true;
  qwen3_next.layer_list = true;
  qwen3_next.released_mtp = true;
  ModelFamily qwen3_5_moe = qwen3_next;
  qwen3_5_moe.words = {"as `qwen3_next`; `mtp_num_hidden_layers` is the number of multi-token-prediction modules",
                       partial_left_out, "with `mtp_num_hidden_layers: 0`"};
  qwen3_5_moe.released_mtp = false;
  ModelFamily qwen3_5 = qwen3_5_moe;
  qwen3_5.shared_gate = false;
  qwen3_5.own_expert_width = false;
  return joined(
      {named({"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}, qwen2),
       named({"qwen2_moe"}, qwen2_moe), named({"mimo"}, mimo), named({"qwen3", "qwen3_vl", "qwen3_vl_text"}, qwen3),
       named({"qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"}, qwen3_moe), named({"hy_v3"}, hy_v3),
       named({"solar_open"}, solar_open), named({"exaone4", "exaone_moe"}, exaone), named({"qwen3_next"}, qwen3_next),
       named({"qwen3_5", "qwen3_5_text"}, qwen3_5), named({"qwen3_5_moe", "qwen3_5_moe_text"}, qwen3_5_moe)});
}

Families gemma_families() {
  const ModelFamily gemma = {
      .words = {"GeGLU, tied", "", "no: GeGLU"}, .activation = Activation::geglu, .tied = true, .strict = true};
  ModelFamily gemma2 = gemma;
  gemma2.words = {"as `gemma`, four norms a layer; every second layer is full", "softcapping: its time", "no: GeGLU"};
  gemma2.norms = 4;
  gemma2.full_every = 2;
  ModelFamily gemma3 = gemma2;
  gemma3.words.read_as = "as `gemma`, four norms a layer; windows by `layer_types` or a pattern";
  gemma3.full_every = 0;
  gemma3.qk_norm = gemma3.layer_list = true;
  return joined({named({"gemma"}, gemma), named({"gemma2"}, gemma2), named({"gemma3", "gemma3_text"}, gemma3)});
}

Families hybrid_families() {
  const ModelFamily jamba = {.words = {"`mamba` and attention by `attn_layer_period`; experts by "
                                       "`expert_layer_period`; no positions",
                                       "", "no: `mamba`"},
                             .recurrence = Recurrence::mamba,
                             .positions = Positions::none,
                             .layer_list = true,
                             .inner_norms = true};
  const ModelFamily nemotron_h = {
      .words = {"`hybrid_override_pattern` or `layers_block_type`: `mamba2/none`, `full/none`, `none/dense`, "
                "`none/moe`; squared ReLU; no positions",
                "", "no: `mamba2`"},
      .activation = Activation::relu2,
      .norms = 1,
      .recurrence = Recurrence::mamba2,
      .positions = Positions::none,
      .strict = true,
      .layer_list = true,
      .own_expert_width = true,
      .one_mixer_per_layer = true};
  const ModelFamily granite = {
      .words = {"`mamba2` and attention by `layer_types`; experts, or with none a dense MLP of "
                "`shared_intermediate_size`; positions by `position_embedding_type`",
                "multipliers of embedding, attention, residual and logits", "no: `mamba2`"},
      .recurrence = Recurrence::mamba2,
      .positions = Positions::none,
      .layer_list = true};
  const ModelFamily minimax = {.words = {"`lightning` and attention by `attn_type_list` or `layer_types`",
                                         "`postnorm`, `shared_moe_mode`", "no: `lightning`"},
                               .recurrence = Recurrence::lightning,
                               .strict = true,
                               .layer_list = true};
  return joined({named({"jamba"}, jamba), named({"nemotron_h"}, nemotron_h), named({"granitemoehybrid"}, granite),
                 named({"minimax", "minimax_text_01", "minimax_m1"}, minimax)});
}

// Families of which plumb knows all that it lacks.
Families refused_families() {
  const auto lacking = [](const Names& names, const Names& features) {
    return named(names, ModelFamily{.lacks = features});
  };
  return joined(
      {lacking({"deepseek_v32", "glm_moe_dsa"}, {lacks::indexer}),
       lacking({"deepseek_v4", "deepseek_ref"}, {lacks::compressed, lacks::one_latent_head, lacks::indexer,
                                                 lacks::grouped_output, lacks::hyper_connections, lacks::hash_routing}),
       lacking({"minimax_m2", "olmo2", "olmo3", "olmoe", "flex_olmo"}, {lacks::norm_over_heads}),
       lacking({"minimax_m3", "minimax_m3_vl"}, {lacks::block_sparse}),
       lacking({"gemma4", "gemma4_text"}, {lacks::two_head_shapes}),
       lacking({"mimo_v2_flash"}, {lacks::two_head_shapes, lacks::sinks_by_kind}),
       lacking({"step3p5", "step3p7"}, {lacks::two_head_shapes, lacks::head_gate}),
       lacking({"nemotron-nas"}, {lacks::unequal_layers}), lacking({"ernie4_5_moe"}, {lacks::router_bias}),
       lacking({"bailing_hybrid"}, {lacks::full_rank_gates, lacks::head_gate}),
       lacking({"falcon_h1"}, {lacks::attention_beside_mamba})});
}

// Fields whose shapes depend on the family.
const Names telling = {
    "linear_num_key_heads", "attn_type_list", "linear_attn_config", "layers_block_type", "mamba_d_state",
    "ssm_state_size",       "n_embd",         "qkv_bias",           "image_size",        "sliding_window_pattern"};

const ModelFamily* find_family(const std::string& name) {
  const Families& all = config_families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ModelFamily& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

[[noreturn]] void fail_unknown(ConfigFields& fields, const std::string& type, const std::optional<YamlValue>& at) {
  find_lacks(fields);
  Names names;
  for (const ModelFamily& family : config_families()) {
    if (family.lacks.empty()) names.push_back(family.name);
  }
  const std::string near = did_you_mean(type, names);
  const bool close = near.starts_with("did you mean");
  const std::string problem = "the model_type '" + type + "' is not known" +
                              (fields.has_lacks() ? ", and plumb lacks: " + fields.lacks_text() : "");
  const std::string hint = close                ? near
                           : fields.has_lacks() ? ""
                                                : "write a model block with its sizes; known is " + near;
  if (at) at->fail(problem, hint);
  fields.fail(problem, hint);
}

}  // namespace

const std::vector<ModelFamily>& config_families() {
  static const Families all =
      joined({gpt_families(), llama_families(), qwen_families(), deepseek_families(), glm_families(),
              gpt_oss_families(), gemma_families(), hybrid_families(), refused_families()});
  return all;
}

ModelFamily read_family(ConfigFields& fields, const std::string& outer_type) {
  const std::optional<YamlValue> type = fields.find({"model_type"});
  if (type || !outer_type.empty()) {
    const std::string name = type ? type->text() : outer_type;
    if (const ModelFamily* found = find_family(name)) return *found;
    fail_unknown(fields, name, type);
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
  return *find_family("llama");
}

}  // namespace plumb
