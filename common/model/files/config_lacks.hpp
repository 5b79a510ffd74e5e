// Features of released models that no plumb model can state, found by the fields that switch them on.
#pragma once

#include "common/model/files/config_fields.hpp"

namespace plumb {

namespace lacks {
inline constexpr const char* indexer = "sparse attention with an indexer";
inline constexpr const char* block_sparse = "block-sparse attention with an index";
inline constexpr const char* compressed = "attention over compressed keys";
inline constexpr const char* one_latent_head = "one latent key-value head";
inline constexpr const char* grouped_output = "a grouped output projection";
inline constexpr const char* hyper_connections = "hyper-connections";
inline constexpr const char* hash_routing = "routing by a hash of the token";
inline constexpr const char* latent_experts = "experts of a latent width";
inline constexpr const char* two_head_shapes = "full and sliding attention with different heads";
inline constexpr const char* keys_as_values = "values that are the keys";
inline constexpr const char* shared_keys = "keys and values shared between layers";
inline constexpr const char* layer_embeddings = "an embedding for each layer";
inline constexpr const char* dense_beside_experts = "a dense MLP beside the experts of one layer";
inline constexpr const char* mlp_widths = "dense MLPs of different widths";
inline constexpr const char* sinks_by_kind = "attention sinks on some kinds of layers only";
inline constexpr const char* unequal_layers = "layers of one kind with different heads and widths";
inline constexpr const char* norm_over_heads = "a norm of queries and keys over all heads";
inline constexpr const char* router_bias = "a trained bias of the router alone";
inline constexpr const char* full_rank_gates = "full-rank gates of Kimi Delta Attention";
inline constexpr const char* latent_gate = "an output gate of latent attention";
inline constexpr const char* head_gate = "an output gate of one number a head";
inline constexpr const char* attention_residuals = "attention over the outputs of earlier layers";
inline constexpr const char* attention_beside_mamba = "attention and Mamba side by side in one layer";
inline constexpr const char* mtp_layers = "multi-token prediction by other layers than the last";
inline constexpr const char* mtp_embeddings = "multi-token prediction with embeddings of its own";
}  // namespace lacks

// Records each feature that the file switches on and that plumb lacks.
void find_lacks(ConfigFields& fields);

}  // namespace plumb
