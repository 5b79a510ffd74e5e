// What a model family implies that the fields of its config.json do not tell.
#pragma once

#include <cstdint>
#include <string>

#include "common/model/files/config_fields.hpp"
#include "common/model/model.hpp"

namespace plumb {

enum class BiasRule : std::uint8_t {
  by_field,  // `attention_bias` of q, k, v and out; `mlp_bias`
  none_but_mlp,
  qkv_only,
  all,
};

struct ModelFamily {
  std::string name = {};
  Activation activation = Activation::swiglu;  // gated or not; which one, where no field says it
  BiasRule bias = BiasRule::by_field;
  bool bias_default = false;  // of `attention_bias`
  bool tied = false;          // unless `tie_word_embeddings` says otherwise
  NormKind norm = NormKind::rmsnorm;
  int norms = 2;
  bool parallel = false;       // mixer and MLP read one norm
  bool rotates_pairs = false;  // rotary positions turn neighbouring elements
  bool qk_norm = false;
  bool output_gate = false;
  bool shared_gate = false;
  bool sinks = false;
  bool moe_bias = false;   // of router and experts
  bool lightning = false;  // linear attention is lightning attention
  Positions positions = Positions::rope;
  bool vision = false;
  bool strict = false;               // class defaults are no released model: head size and KV heads must be there
  bool layer_list = false;           // which layers are which must be written, as a list or a pattern
  bool dense_first = false;          // the number of dense layers before the experts must be written
  bool own_expert_width = false;     // experts are not as wide as `intermediate_size`
  bool window_needs_switch = false;  // a window counts only with `use_sliding_window`
  std::int64_t window_pattern = 0;   // every n-th layer is full, where the fields do not say
  std::int64_t mtp_modules = 0;      // of the released weights, where the fields do not say
  bool inner_norms = false;          // of Mamba-1
  bool one_mixer_per_layer = false;
};

// By `model_type`. Without one: a plain Llama-like file; throws InputError when the fields need the family.
[[nodiscard]] ModelFamily read_family(ConfigFields& fields);

}  // namespace plumb
