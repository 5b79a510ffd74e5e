// Features that scenarios combine: a closed list, each with its name, its phrase in messages and its key in a scenario.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plumb {

enum class Feature : std::uint8_t {
  // mesh
  pipeline,
  data_parallel,
  context,
  expert,
  data_before_pipeline,
  pipeline_before_data,
  other_order,
  // tensor
  tensor_1d,
  sequence_parallel,
  asynchronous_tokens,
  tensor_2d,
  tensor_2_5d,
  tensor_3d,
  panels,
  scattered_messages,
  // data
  zero1,
  zero2,
  zero3,
  fsdp,
  hsdp,
  data_by_stage,
  whole_weights,
  gathered_once,
  reduced_once,
  prefetch,
  layers_per_unit,
  quantized_weights,
  secondary_shard,
  quantized_gradients,
  overlapped_copies,
  serial_data,
  // vocabulary
  vocabulary_parallel,
  // training
  fp32,
  bf16,
  fp16,
  recompute_selective,
  recompute_by_stage,
  recompute_by_layer,
  recompute_first_layers,
  recompute_every_nth,
  offload_optimizer,
  offload_activations,
  offload_parameters,
  offload_of_both,
  offload_of_one,
  lora,
  clipping,
  profile,
  // schedules
  gpipe,
  one_f_one_b,
  eager_1f1b,
  interleaved_1f1b,
  breadth_first,
  zb_h1,
  zb_h2,
  zb_v,
  zb_auto,
  interleaved_zb,
  v_half,
  v_min,
  dualpipe,
  dualpipe_v,
  chimera,
  hanayo,
  seq_1f1b,
  bpipe,
  pipedream,
  pipedream_2bw,
  schedule_of_file,
  // properties of schedules
  overlapped_pairs,
  two_replicas,
  updates_within,
  slices,
  unequal_slices,
  evictions,
  made_for_times,
  whole_head,
  // splits
  split_uniform,
  split_by_parameters,
  split_dynamic,
  split_counts,
  split_layout,
  // model
  full_attention,
  sliding_attention,
  bidirectional_attention,
  bidirectional_window,
  bidirectional_text,
  attention_sinks,
  other_value_size,
  latent_attention,
  gated_delta,
  channel_gated_delta,
  lightning,
  mamba,
  mamba2,
  dense_mlp,
  geglu,
  relu2,
  experts,
  other_expert_activation,
  expert_biases,
  parallel_experts,
  tied_embeddings,
  tied_over_ranks,
  mtp,
  images,
  image_positions,
  // machine
  cpu,
  gpu,
  no_host,
};
inline constexpr std::size_t feature_count = static_cast<std::size_t>(Feature::no_host) + 1;

using FeatureSet = std::bitset<feature_count>;

[[nodiscard]] constexpr std::size_t index_of(Feature feature) { return static_cast<std::size_t>(feature); }

enum class FeatureGroup : std::uint8_t {
  mesh,
  tensor,
  data,
  vocabulary,
  training,
  offload,
  schedule,
  schedule_property,
  split,
  model,
  machine
};
inline constexpr std::size_t feature_group_count = static_cast<std::size_t>(FeatureGroup::machine) + 1;

struct FeatureFacts {
  Feature feature = Feature::pipeline;
  FeatureGroup group = FeatureGroup::mesh;
  std::string_view name = {};    // in the table of docs/reference/support.md; of a schedule its name in scenarios
  std::string_view phrase = {};  // in messages, behind "with"; "{schedule}" is the schedule's name
  std::string_view key = {};     // in a scenario and in a plan: "layout.tensor.kind"
};

[[nodiscard]] const FeatureFacts& facts_of(Feature feature);
[[nodiscard]] std::string_view name_of(FeatureGroup group);

// The schedule of this name in scenarios; nullopt if there is none.
[[nodiscard]] std::optional<Feature> find_schedule_feature(std::string_view name);

// Calls `visit` for each feature of the set, in the order of the enumeration.
template <class Visit>
void for_each(const FeatureSet& set, Visit visit) {
  for (std::size_t i = 0; i < feature_count; ++i) {
    if (set[i]) visit(static_cast<Feature>(i));
  }
}

}  // namespace plumb
