#include "common/model/files/config_lacks.hpp"

#include <algorithm>

namespace plumb {
namespace {

// A field switches its feature on unless it is null, false, 0, empty, or equal to the field `unless_equal`.
struct Switch {
  const char* field = nullptr;
  const char* feature = nullptr;
  const char* unless_equal = nullptr;
};

constexpr Switch switches[] = {{"index_n_heads", lacks::indexer},
                               {"index_topk", lacks::indexer},
                               {"sparse_attention_config", lacks::block_sparse},
                               {"compress_ratios", lacks::compressed},
                               {"o_lora_rank", lacks::grouped_output},
                               {"hc_mult", lacks::hyper_connections},
                               {"num_hash_layers", lacks::hash_routing},
                               {"moe_latent_size", lacks::latent_experts},
                               {"routed_expert_hidden_size", lacks::latent_experts},
                               {"global_head_dim", lacks::two_head_shapes, "head_dim"},
                               {"num_global_key_value_heads", lacks::two_head_shapes, "num_key_value_heads"},
                               {"swa_head_dim", lacks::two_head_shapes, "head_dim"},
                               {"swa_v_head_dim", lacks::two_head_shapes, "v_head_dim"},
                               {"swa_num_attention_heads", lacks::two_head_shapes, "num_attention_heads"},
                               {"swa_num_key_value_heads", lacks::two_head_shapes, "num_key_value_heads"},
                               {"attention_k_eq_v", lacks::keys_as_values},
                               {"num_kv_shared_layers", lacks::shared_keys},
                               {"hidden_size_per_layer_input", lacks::layer_embeddings},
                               {"enable_moe_block", lacks::dense_beside_experts},
                               {"use_double_wide_mlp", lacks::mlp_widths},
                               {"add_swa_attention_sink_bias", lacks::sinks_by_kind},
                               {"add_full_attention_sink_bias", lacks::sinks_by_kind},
                               {"block_configs", lacks::unequal_layers},
                               {"mla_use_output_gate", lacks::latent_gate},
                               {"use_head_wise_attn_gate", lacks::head_gate},
                               {"attn_res_block_size", lacks::attention_residuals},
                               {"mtp_use_dedicated_embeddings", lacks::mtp_embeddings}};

bool is_on(const YamlValue& value) {
  if (value.is_map()) return !value.keys().empty();
  if (value.is_list()) {
    const std::vector<YamlValue> items = value.items();
    return std::any_of(items.begin(), items.end(), is_on);
  }
  if (value.is_null()) return false;
  const std::string text = value.text();
  return !text.empty() && text != "false" && text != "0";
}

}  // namespace

void find_lacks(ConfigFields& fields) {
  for (const Switch& entry : switches) {
    const std::optional<YamlValue> value = fields.find({entry.field});
    if (!value || !is_on(*value)) continue;
    const std::optional<YamlValue> usual = entry.unless_equal ? fields.find({entry.unless_equal}) : std::nullopt;
    if (usual && usual->is_scalar() && value->is_scalar() && usual->text() == value->text()) continue;
    fields.lack(entry.feature, entry.field);
  }
}

}  // namespace plumb
