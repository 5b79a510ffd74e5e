// Properties of a model family that the fields of its config.json do not state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/files/config_fields.hpp"
#include "common/model/model.hpp"

namespace plumb {

enum class BiasRule : std::uint8_t {
  by_field,      // `attention_bias` of q, k, v and out; `mlp_bias`
  qkv_by_field,  // `attention_bias` of q, k and v; `attention_out_bias`; `mlp_bias`
  qkv_only,      // q, k and v, unless `attention_bias` is false
  none_but_mlp,
  all,
};

// Mixer of the layers that a file calls linear attention.
enum class Recurrence : std::uint8_t { gated_delta, lightning, mamba, mamba2 };

// Words for the reference page, one cell each.
struct FamilyWords {
  std::string read_as = {};
  std::string left_out = {};
  std::string runs = {};  // "yes", or "no: " and the reason
};

struct ModelFamily {
  std::string name = {};
  FamilyWords words = {};
  Names lacks = {};                            // features that no plumb model can state; the family is refused
  Activation activation = Activation::swiglu;  // whether gated; the function itself if no field names it
  BiasRule bias = BiasRule::by_field;
  bool bias_default = false;  // of `attention_bias`
  bool tied = false;          // unless `tie_word_embeddings` is there
  NormKind norm = NormKind::rmsnorm;
  int norms = 2;
  bool parallel = false;       // mixer and MLP read one norm
  bool rotates_pairs = false;  // rotary positions turn neighbouring elements
  bool qk_norm = false;
  bool qk_norm_by_field = false;  // `use_qk_norm` decides
  bool weightless_qk_norm = false;
  bool output_gate = false;
  bool shared_gate = false;
  bool sinks = false;
  bool moe_bias = false;  // of router and experts
  Recurrence recurrence = Recurrence::gated_delta;
  Positions positions = Positions::rope;
  bool vision = false;
  bool text_beside_vision = false;   // a flat file may hold `vision_config`
  bool strict = false;               // class defaults are no released model: head size and KV heads must be there
  bool derived_head_dim = false;     // a file that transformers 5 saved may leave the head size out
  bool layer_list = false;           // the file must list its kinds of layers, or have a pattern
  bool dense_first = false;          // the number of dense layers before the experts must be there
  bool own_expert_width = false;     // experts are not as wide as `intermediate_size`
  bool shared_always = false;        // one shared expert of `intermediate_size` in each MoE layer (Llama 4)
  bool window_needs_switch = false;  // a window counts only with `use_sliding_window`
  bool chunked = false;              // windows are chunks of `attention_chunk_size` tokens
  std::int64_t full_every = 0;       // every n-th layer is full where no field says it; 0 if all are
  bool released_mtp = false;         // released weights have an MTP module that no field mentions
  bool inner_norms = false;          // of Mamba-1
  bool one_mixer_per_layer = false;
};

// Returns the family of `model_type`, also a refused one. Without `model_type` a plain file with SiLU is `llama`.
// `outer_type` is the type beside `text_config`, used where the block itself has none.
// Throws InputError for an unknown type, with every feature of the file that plumb lacks.
[[nodiscard]] ModelFamily read_family(ConfigFields& fields, const std::string& outer_type = "");

// All families in the order of the reference page: those that are read, then those that are refused.
[[nodiscard]] const std::vector<ModelFamily>& config_families();

}  // namespace plumb
