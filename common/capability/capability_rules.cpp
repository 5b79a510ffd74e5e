// Rules of the table of capabilities, in the order in which messages name them.
#include "common/capability/capability.hpp"

namespace plumb {
namespace {

using enum Feature;
using enum Purpose;

using Features = std::vector<Feature>;

const Features grids = {tensor_2d, tensor_2_5d, tensor_3d};
const Features tensors = {tensor_1d, tensor_2d, tensor_2_5d, tensor_3d};
const Features shardings = {zero1, zero2, zero3, fsdp, hsdp};
const Features offloads = {offload_optimizer, offload_activations, offload_parameters};
const Features zero_plus_plus = {quantized_weights, secondary_shard, quantized_gradients};

constexpr std::string_view megatron_arguments = "megatron/training/arguments.py";
constexpr std::string_view megatron_schedules = "megatron/core/pipeline_parallel/schedules.py";
constexpr std::string_view megatron_config = "megatron/core/transformer/transformer_config.py";
constexpr std::string_view megatron_state = "megatron/core/parallel_state.py";
constexpr std::string_view megatron_mixers = "megatron/core/ssm";
constexpr std::string_view titan_config = "torchtitan/config/configs.py";
constexpr std::string_view titan_pipeline = "torchtitan/distributed/pipeline_parallel.py";
constexpr std::string_view titan_checkpoint = "torchtitan/distributed/activation_checkpoint.py";
constexpr std::string_view titan_mesh = "torchtitan/distributed/parallel_dims.py";
constexpr std::string_view titan_models = "torchtitan/models";
constexpr std::string_view titan_decoder = "torchtitan/models/common/decoder.py";

void add(std::vector<CapabilityRule>& all, std::vector<CapabilityRule> more) {
  for (CapabilityRule& rule : more) all.push_back(std::move(rule));
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<CapabilityRule> rules_of_planning() {
  return {
      {plan, {context, expert}, {}, Level::not_yet, "", "supported: pipeline, tensor and data parallelism"},
      // Vocabulary over the pipeline.
      {plan, {vocabulary_parallel}, {images}, Level::not_yet, "it has classes instead", "a layout without vocabulary"},
      {plan, {vocabulary_parallel}, grids, Level::not_yet, "", "tensor: {kind: 1d}"},
      {plan, {vocabulary_parallel}, {asynchronous_tokens}, Level::not_yet, "", "tensor: {asynchronous: false}"},
      {plan, {vocabulary_parallel}, {data_by_stage}, Level::not_yet, "", "data: {degree: …}"},
      {plan, {vocabulary_parallel}, {zero2, zero3, fsdp, hsdp}, Level::not_yet, "", "data: {sharding: zero1}"},
      {plan, {vocabulary_parallel}, {lora}, Level::not_yet, "", "training without lora"},
      {plan, {vocabulary_parallel}, offloads, Level::not_yet, "", "training without offload"},
      {plan,
       {vocabulary_parallel},
       {profile},
       Level::not_yet,
       "a profile measures whole heads",
       "leave the profile out"},
      {plan,
       {whole_head},
       {vocabulary_parallel},
       Level::not_yet,
       "its ranks do not divide it",
       "schedule: one of 1f1b, zb-h1"},
      // Grids.
      {plan,
       {sequence_parallel},
       grids,
       Level::never,
       "a grid divides hidden states already",
       "kind: 1d, or sequence_parallel: false"},
      {plan, {data_by_stage}, grids, Level::not_yet, "", "kind: 1d, or one data degree"},
      {plan, {lora}, grids, Level::not_yet, "", "kind: 1d"},
      {plan,
       {latent_attention, gated_delta, channel_gated_delta, lightning, mamba, mamba2},
       grids,
       Level::not_yet,
       "",
       "softmax attention (full or sliding), or kind: 1d"},
      {plan, {experts}, grids, Level::not_yet, "", "dense MLPs, or kind: 1d"},
      {plan, {images}, grids, Level::not_yet, "", "a model of text, or kind: 1d"},
      {plan, {mtp}, grids, Level::not_yet, "", "a model without it, or kind: 1d"},
      {plan,
       {tied_embeddings},
       grids,
       Level::not_yet,
       "embedding and head place it differently",
       "tied_embeddings: false, or kind: 1d"},
      // Data parallelism.
      {plan, {prefetch}, {serial_data}, Level::not_yet, "", "software: {like: …, data_overlap: true}, or no prefetch"},
      {plan,
       {layers_per_unit},
       {offload_activations, offload_parameters},
       Level::not_yet,
       "",
       "layers_per_unit: 1, or offload: optimizer"},
      {plan, {layers_per_unit}, zero_plus_plus, Level::not_yet, "", "layers_per_unit: 1, or sharding: fsdp"},
      {plan,
       {prefetch},
       {offload_of_both},
       Level::not_yet,
       "both come up over one link to the host",
       "prefetch: 1, or offload: parameters"},
      {plan, shardings, {data_by_stage}, Level::not_yet, "", "data: {degree: …} without by_stage, or sharding: none"},
      {plan, shardings, {two_replicas}, Level::not_yet, "", "schedule: zb-h1, or sharding: none"},
      {plan, shardings, {updates_within}, Level::not_yet, "", "schedule: 1f1b, or sharding: none"},
      {plan, {data_by_stage}, {profile}, Level::not_yet, "a profile is of one microbatch", "leave the profile out"},
      {plan, {data_by_stage}, {made_for_times}, Level::not_yet, "", "schedule: zb-h1"},
      {plan, {data_by_stage}, {two_replicas, evictions}, Level::not_yet, "", "schedule: 1f1b"},
      {plan, {data_by_stage}, {unequal_slices}, Level::not_yet, "", "slices_by: tokens"},
      {plan, {data_by_stage}, {tied_over_ranks}, Level::not_yet, "", "model: {tied_embeddings: false}"},
      // Offload.
      {plan, offloads, {no_host}, Level::never, "", "its key host, or offload: none"},
      {plan, offloads, {updates_within}, Level::not_yet, "", "schedule: 1f1b, or offload: none"},
      {plan,
       {offload_activations},
       {recompute_by_stage},
       Level::not_yet,
       "R makes them anew, and a stage saves its input alone",
       "software: {recompute_unit: layer}, recompute: none, or offload without activations"},
      {plan,
       {offload_activations},
       {slices},
       Level::not_yet,
       "slices hand some of them on",
       "schedule: 1f1b, or offload without activations"},
      {plan, {offload_activations}, {evictions}, Level::not_yet, "", "schedule: 1f1b, or offload without activations"},
      {plan,
       {offload_activations},
       {made_for_times},
       Level::not_yet,
       "",
       "schedule: zb-h1, or offload without activations"},
      {plan,
       {offload_activations},
       {data_by_stage},
       Level::not_yet,
       "",
       "data: {degree: …}, or offload without activations"},
      {plan,
       {offload_parameters},
       {whole_weights},
       Level::never,
       "only sharded weights can be offloaded",
       "data: {sharding: fsdp} or zero3, with a data degree, or offload without parameters"},
      {plan,
       {offload_parameters},
       {gathered_once},
       Level::not_yet,
       "each action must gather its own weights",
       "data: {reshard_after_forward: true}, or offload without parameters"},
      {plan,
       {offload_parameters},
       zero_plus_plus,
       Level::not_yet,
       "",
       "data: {sharding: zero3}, or offload without parameters"},
      // Schedules.
      {plan,
       {clipping},
       {updates_within},
       Level::not_yet,
       "gradients are clipped once a step",
       "gradient_clipping: 0, or schedule: 1f1b"},
      {plan,
       {bidirectional_attention, images},
       {slices},
       Level::never,
       "a slice would need later slices",
       "causal attention over text, or a schedule of whole sequences, such as 1f1b"},
      {plan,
       {recompute_by_stage},
       {slices, evictions},
       Level::not_yet,
       "",
       "recompute: {layers: …} or {every: …}, which recompute single layers inside their backward, selective or none; "
       "or another schedule"},
  };
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<CapabilityRule> rules_of_hosts() {
  constexpr std::string_view mixers = "full, sliding and linear attention";
  constexpr std::string_view activations =
      "the activations swiglu, gelu and gelu_erf of a dense MLP, and swiglu of a mixture of experts";
  constexpr std::string_view degree_1 = "tensor: {degree: 1}";
  return {
      {hosts, {data_by_stage}, {}, Level::not_yet, "", "data: {degree: …}"},
      {hosts, {fp16}, {}, Level::not_yet, "", "precision: fp32 or bf16"},
      {hosts, {recompute_first_layers, recompute_every_nth}, {}, Level::not_yet, "", "none, selective or full"},
      {hosts, {recompute_by_layer}, {}, Level::not_yet, "", "software: plumb"},
      {hosts, {overlapped_copies}, {}, Level::not_yet, "", "software: {copies_overlap: false}"},
      {hosts,
       {scattered_messages},
       {},
       Level::not_yet,
       "",
       "software without scattered_messages, such as plumb, or tensor: {sequence_parallel: true}"},
      {hosts, {latent_attention, channel_gated_delta, lightning, mamba, mamba2}, {}, Level::not_yet, "", mixers},
      {hosts, {bidirectional_window}, {}, Level::not_yet, "", "bidirectional attention of all tokens of an image"},
      {hosts, {bidirectional_text}, {}, Level::not_yet, "it would see its targets", "causal attention over text"},
      {hosts, {attention_sinks}, {}, Level::not_yet, "", "full and sliding attention without sinks"},
      {hosts, {other_value_size}, {}, Level::not_yet, "", "values as large as keys"},
      {hosts, {geglu, relu2, other_expert_activation}, {}, Level::not_yet, "", activations},
      {hosts, {expert_biases}, {}, Level::not_yet, "", "a mixture of experts without"},
      {hosts,
       {mtp},
       {},
       Level::not_yet,
       "",
       "the model without it: mtp: 0 in its block, or num_nextn_predict_layers: 0 in its config.json"},
      {hosts, {image_positions}, {}, Level::not_yet, "", "learned positions"},
      {hosts, {images}, {tied_embeddings}, Level::not_yet, "", "no tied embeddings"},
      {hosts,
       {quantized_weights},
       {gathered_once},
       Level::not_yet,
       "",
       "data: {reshard_after_forward: true}, or without quantized_weights"},
      {hosts,
       {quantized_gradients},
       {reduced_once},
       Level::not_yet,
       "",
       "data: {reduce: each_microbatch}, or without quantized_gradients"},
      {hosts,
       {quantized_weights, quantized_gradients},
       tensors,
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or secondary_shard alone"},
      {hosts,
       {two_replicas},
       {data_parallel},
       Level::not_yet,
       "",
       "data: {degree: 1}, or a schedule that trains one replica, such as zb-h1"},
      {hosts,
       {two_replicas},
       tensors,
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or a schedule that trains one replica, such as zb-h1"},
      {hosts,
       {updates_within},
       {data_parallel},
       Level::not_yet,
       "",
       "data: {degree: 1}, or a schedule that updates once a step, such as 1f1b"},
      {hosts,
       {updates_within},
       tensors,
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or a schedule that updates once a step, such as 1f1b"},
      {hosts, {updates_within}, {slices}, Level::not_yet, "", "one update a step"},
      {hosts, {lora}, tensors, Level::not_yet, "", "tensor: {degree: 1}, or without lora"},
      {hosts, {images}, tensors, Level::not_yet, "", degree_1},
      {hosts, {parallel_experts}, tensors, Level::not_yet, "", degree_1},
      {hosts,
       {slices},
       tensors,
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or a schedule of whole sequences, such as 1f1b"},
      {hosts,
       {evictions},
       tensors,
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or a schedule without evictions, such as 1f1b"},
      {hosts,
       {offload_activations},
       {tensor_1d},
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or offload without activations"},
      {hosts, offloads, grids, Level::not_yet, "", "training: {offload: none}"},
  };
}

std::vector<CapabilityRule> rules_of_devices() {
  constexpr std::string_view on_host = "training: {offload: none}, or --device cpu";
  return {
      {devices,
       {vocabulary_parallel},
       {},
       Level::not_yet,
       "",
       "a layout without vocabulary, or run it with --device cpu and --transport local or gloo"},
      {devices, offloads, {}, Level::not_yet, "", on_host},
      {devices, zero_plus_plus, {}, Level::not_yet, "", "data: {sharding: zero3}, or --device cpu"},
      {devices,
       {asynchronous_tokens, panels},
       {},
       Level::not_yet,
       "",
       "tensor: {asynchronous: false}, or run it with --device cpu and --transport local or gloo"},
      {shared_device,
       {data_parallel},
       {},
       Level::not_yet,
       "",
       "data: {degree: 1}, or run it with --device cpu, or with --transport nccl, which gives each rank a device of "
       "its own"},
      {shared_device,
       tensors,
       {},
       Level::not_yet,
       "",
       "tensor: {degree: 1}, or run it with --device cpu, or with --transport nccl, which gives each rank a device of "
       "its own"},
  };
}

// Megatron-LM at d98e8a6 (Core 0.20), which keeps what Core 0.12 has of this list.
// NOLINTNEXTLINE(readability-function-size): a table
std::vector<CapabilityRule> rules_of_megatron() {
  constexpr std::string_view schedules = "schedule: 1f1b or interleaved-1f1b";
  constexpr std::string_view order = "order: [tensor, data, pipeline], or [tensor, pipeline, data]";
  return {
      {megatron,
       {gpipe, eager_1f1b, breadth_first, zb_h1, zb_h2, zb_v, zb_auto, interleaved_zb, v_half, v_min, dualpipe,
        dualpipe_v, chimera, hanayo, seq_1f1b, bpipe, pipedream, pipedream_2bw, schedule_of_file},
       {},
       Level::not_yet,
       "",
       schedules,
       megatron_schedules},
      {megatron, grids, {}, Level::not_yet, "", "kind: 1d", megatron_arguments},
      {megatron, {data_by_stage}, {}, Level::not_yet, "", "data: {degree: …}", megatron_state},
      {megatron, {other_order}, {}, Level::not_yet, "", order, megatron_arguments},
      {megatron,
       zero_plus_plus,
       {},
       Level::not_yet,
       "",
       "sharding: none, zero1, zero2, fsdp or hsdp",
       megatron_arguments},
      {megatron,
       {gathered_once, prefetch, layers_per_unit},
       {},
       Level::not_yet,
       "",
       "data: {reshard_after_forward: true} with its usual prefetch and units",
       megatron_arguments},
      {megatron, {vocabulary_parallel}, {}, Level::not_yet, "", "a layout without vocabulary", megatron_arguments},
      {megatron,
       {recompute_every_nth},
       {},
       Level::not_yet,
       "its methods are uniform and block",
       "recompute: none, selective, full or {layers: n}",
       megatron_config},
      {megatron, {offload_parameters}, {}, Level::not_yet, "", "offload: optimizer", megatron_arguments},
      {megatron, {lora}, {}, Level::not_yet, "Megatron-Bridge adds it", "training without lora", megatron_arguments},
      {megatron,
       {channel_gated_delta, lightning, mamba},
       {},
       Level::not_yet,
       "",
       "full, sliding and linear attention, mla or mamba2",
       megatron_mixers},
      {megatron,
       {offload_activations},
       {pipeline},
       Level::not_yet,
       "",
       "pipeline: 1, or offload without activations",
       megatron_config},
      {megatron,
       {offload_activations},
       {recompute_selective, recompute_by_stage, recompute_by_layer, recompute_first_layers},
       Level::not_yet,
       "",
       "recompute: none, or offload without activations",
       megatron_config},
      {megatron,
       {overlapped_pairs},
       {recompute_by_stage, recompute_by_layer, recompute_first_layers},
       Level::not_yet,
       "",
       "recompute: none or selective",
       megatron_config},
  };
}

// torchtitan at b5bcd76 (August 2026); its schedules are those of torch.distributed.pipelining.
// NOLINTNEXTLINE(readability-function-size): a table
std::vector<CapabilityRule> rules_of_torchtitan() {
  constexpr std::string_view schedules =
      "schedule: gpipe, 1f1b, interleaved-1f1b, breadth-first, interleaved-zb, zb-v, dualpipe-v, or a file";
  return {
      {torchtitan,
       {eager_1f1b, zb_h1, zb_h2, zb_auto, v_half, v_min, dualpipe, chimera, hanayo, seq_1f1b, bpipe, pipedream,
        pipedream_2bw},
       {},
       Level::not_yet,
       "",
       schedules,
       titan_pipeline},
      {torchtitan, {overlapped_pairs}, {interleaved_1f1b}, Level::not_yet, "", "schedule: dualpipe-v", titan_pipeline},
      {torchtitan, grids, {}, Level::not_yet, "", "kind: 1d", titan_config},
      {torchtitan, {data_by_stage}, {}, Level::not_yet, "", "data: {degree: …}", titan_mesh},
      {torchtitan,
       {pipeline_before_data, other_order},
       {},
       Level::not_yet,
       "",
       "order: [tensor, data, pipeline]",
       titan_mesh},
      {torchtitan, {zero1, zero2}, {}, Level::not_yet, "", "sharding: none, fsdp or hsdp", titan_config},
      {torchtitan, zero_plus_plus, {}, Level::not_yet, "", "sharding: none, fsdp or hsdp", titan_config},
      {torchtitan,
       {prefetch, layers_per_unit},
       {},
       Level::not_yet,
       "",
       "prefetch and units as they are usually",
       titan_config},
      {torchtitan, {scattered_messages}, {}, Level::not_yet, "", "software without scattered_messages", titan_pipeline},
      {torchtitan, {vocabulary_parallel}, {}, Level::not_yet, "", "a layout without vocabulary", titan_config},
      {torchtitan, {fp16}, {}, Level::not_yet, "", "precision: bf16 or fp32", titan_config},
      {torchtitan,
       {recompute_selective},
       {},
       Level::not_yet,
       "its selective mode saves attention",
       "recompute: none, full or {every: n}",
       titan_checkpoint},
      {torchtitan,
       {recompute_by_stage, recompute_first_layers},
       {},
       Level::not_yet,
       "it wraps single layers",
       "recompute: none or {every: n}, or software: torchtitan-2025 with full",
       titan_checkpoint},
      {torchtitan,
       {offload_activations, offload_of_one},
       {},
       Level::not_yet,
       "FSDP offloads both states and weights",
       "offload: optimizer+parameters",
       titan_config},
      {torchtitan,
       {channel_gated_delta, lightning, mamba, mamba2},
       {},
       Level::not_yet,
       "",
       "full, sliding and linear attention, or mla",
       titan_models},
      {torchtitan, {images}, {}, Level::not_yet, "", "a model of text", titan_models},
      {torchtitan,
       {tied_embeddings},
       {pipeline},
       Level::not_yet,
       "",
       "tied_embeddings: false, or pipeline: 1",
       titan_decoder},
  };
}

// Values of one choice, which no scenario has together.
std::vector<CapabilityRule> exclusive_rules() {
  const std::vector<Features> choices = {
      {data_before_pipeline, pipeline_before_data, other_order},
      tensors,
      {zero1, zero2, zero3, fsdp, hsdp},
      {asynchronous_tokens, panels},
      {fp32, bf16, fp16},
      {recompute_selective, recompute_by_stage, recompute_by_layer, recompute_first_layers, recompute_every_nth},
      {offload_of_both, offload_of_one},
      {split_uniform, split_by_parameters, split_dynamic, split_counts, split_layout},
      {cpu, gpu},
      {gpipe,     one_f_one_b,   eager_1f1b,      interleaved_1f1b, breadth_first, zb_h1,
       zb_h2,     zb_v,          zb_auto,         interleaved_zb,   v_half,        v_min,
       dualpipe,  dualpipe_v,    chimera,         hanayo,           seq_1f1b,      bpipe,
       pipedream, pipedream_2bw, schedule_of_file}};
  std::vector<CapabilityRule> all;
  for (const Features& choice : choices) {
    all.push_back({.purpose = plan, .first = choice, .second = choice, .level = Level::exclusive});
  }
  return all;
}

}  // namespace

const std::vector<CapabilityRule>& capability_rules() {
  static const std::vector<CapabilityRule> rules = [] {
    std::vector<CapabilityRule> all;
    add(all, exclusive_rules());
    add(all, rules_of_planning());
    add(all, rules_of_hosts());
    add(all, rules_of_devices());
    add(all, rules_of_megatron());
    add(all, rules_of_torchtitan());
    return all;
  }();
  return rules;
}

}  // namespace plumb
