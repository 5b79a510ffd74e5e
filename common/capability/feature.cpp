#include "common/capability/feature.hpp"

#include <array>

namespace plumb {
namespace {

using enum Feature;
using Group = FeatureGroup;

constexpr std::array<FeatureFacts, feature_count> all_facts = {{
    {pipeline, Group::mesh, "pipeline", "a pipeline of several ranks", "layout.pipeline"},
    {data_parallel, Group::mesh, "data parallel", "several data-parallel ranks", "layout.data"},
    {context, Group::mesh, "context parallel", "context parallelism", "layout.context"},
    {expert, Group::mesh, "expert parallel", "expert parallelism", "layout.expert"},
    {data_before_pipeline, Group::mesh, "order tensor-data-pipeline", "the order tensor, data, pipeline",
     "layout.order"},
    {pipeline_before_data, Group::mesh, "order tensor-pipeline-data", "the order tensor, pipeline, data",
     "layout.order"},
    {other_order, Group::mesh, "other orders", "an order that does not begin with tensor", "layout.order"},
    {tensor_1d, Group::tensor, "tensor 1d", "1d tensor parallelism", "layout.tensor"},
    {sequence_parallel, Group::tensor, "sequence parallel", "sequence parallelism", "layout.tensor.sequence_parallel"},
    {asynchronous_tokens, Group::tensor, "asynchronous tensor (tokens)", "asynchronous tensor parallelism",
     "layout.tensor.asynchronous"},
    {tensor_2d, Group::tensor, "tensor 2d", "a 2d tensor layout", "layout.tensor.kind"},
    {tensor_2_5d, Group::tensor, "tensor 2.5d", "a 2.5d tensor layout", "layout.tensor.kind"},
    {tensor_3d, Group::tensor, "tensor 3d", "a 3d tensor layout", "layout.tensor.kind"},
    {panels, Group::tensor, "panels (asynchronous 2d, 2.5d)", "panels overlapped with matmuls",
     "layout.tensor.asynchronous"},
    {scattered_messages, Group::tensor, "scattered messages", "messages that a tensor group scatters and gathers",
     "software"},
    {zero1, Group::data, "zero1", "sharding zero1", "layout.data.sharding"},
    {zero2, Group::data, "zero2", "sharding zero2", "layout.data.sharding"},
    {zero3, Group::data, "zero3", "sharding zero3", "layout.data.sharding"},
    {fsdp, Group::data, "fsdp", "sharding fsdp", "layout.data.sharding"},
    {hsdp, Group::data, "hsdp", "sharding hsdp", "layout.data.sharding"},
    {data_by_stage, Group::data, "data degrees by stage", "data degrees by stage", "layout.data.by_stage"},
    {whole_weights, Group::data, "whole weights", "whole weights on each data-parallel rank", "layout.data.sharding"},
    {gathered_once, Group::data, "weights gathered once a step", "weights gathered once a step",
     "layout.data.reshard_after_forward"},
    {reduced_once, Group::data, "gradients reduced once a step", "gradients reduced once a step", "layout.data.reduce"},
    {prefetch, Group::data, "prefetch of 2 or more", "a prefetch of 2 or more", "layout.data.prefetch"},
    {layers_per_unit, Group::data, "layers_per_unit of 2 or more", "layers_per_unit of 2 or more",
     "layout.data.layers_per_unit"},
    {quantized_weights, Group::data, "quantized weights (qwZ)", "quantized_weights of ZeRO++",
     "layout.data.quantized_weights"},
    {secondary_shard, Group::data, "secondary shard (hpZ)", "secondary_shard of ZeRO++", "layout.data.secondary_shard"},
    {quantized_gradients, Group::data, "quantized gradients (qgZ)", "quantized_gradients of ZeRO++",
     "layout.data.quantized_gradients"},
    {overlapped_copies, Group::data, "overlapped reduction over HSDP's copies",
     "a reduction over HSDP's copies that overlaps the backward", "software"},
    {serial_data, Group::data, "no data overlap", "software that overlaps no data-parallel collectives", "software"},
    {vocabulary_parallel, Group::vocabulary, "vocabulary over the pipeline", "a vocabulary over the pipeline",
     "layout.vocabulary"},
    {fp32, Group::training, "fp32", "precision fp32", "training.precision"},
    {bf16, Group::training, "bf16", "precision bf16", "training.precision"},
    {fp16, Group::training, "fp16", "precision fp16", "training.precision"},
    {recompute_selective, Group::training, "recompute selective", "recompute: selective", "training.recompute"},
    {recompute_by_stage, Group::training, "recompute full, by stage", "recompute: full of whole stages",
     "training.recompute"},
    {recompute_by_layer, Group::training, "recompute full, by layer", "recompute: full of single layers",
     "training.recompute"},
    {recompute_first_layers, Group::training, "recompute of the first layers", "recompute: {layers: n}",
     "training.recompute"},
    {recompute_every_nth, Group::training, "recompute of every nth layer", "recompute of every nth layer",
     "training.recompute"},
    {offload_optimizer, Group::offload, "offload optimizer", "offload of optimizer states", "training.offload"},
    {offload_activations, Group::offload, "offload activations", "offload of activations", "training.offload"},
    {offload_parameters, Group::offload, "offload parameters", "offload of parameters", "training.offload"},
    {offload_of_both, Group::offload, "offload activations+parameters", "offload of activations and parameters",
     "training.offload"},
    {offload_of_one, Group::offload, "offload of optimizer or parameters alone",
     "offload of the optimizer's states or of parameters alone", "training.offload"},
    {lora, Group::training, "LoRA", "LoRA", "training.lora"},
    {clipping, Group::training, "gradient clipping", "gradient clipping", "training.gradient_clipping"},
    {profile, Group::training, "measured profile", "a profile", "profile"},
    {gpipe, Group::schedule, "gpipe", "the schedule gpipe", "schedule"},
    {one_f_one_b, Group::schedule, "1f1b", "the schedule 1f1b", "schedule"},
    {eager_1f1b, Group::schedule, "eager-1f1b", "the schedule eager-1f1b", "schedule"},
    {interleaved_1f1b, Group::schedule, "interleaved-1f1b", "the schedule interleaved-1f1b", "schedule"},
    {breadth_first, Group::schedule, "breadth-first", "the schedule breadth-first", "schedule"},
    {zb_h1, Group::schedule, "zb-h1", "the schedule zb-h1", "schedule"},
    {zb_h2, Group::schedule, "zb-h2", "the schedule zb-h2", "schedule"},
    {zb_v, Group::schedule, "zb-v", "the schedule zb-v", "schedule"},
    {zb_auto, Group::schedule, "zb-auto", "the schedule zb-auto", "schedule"},
    {interleaved_zb, Group::schedule, "interleaved-zb", "the schedule interleaved-zb", "schedule"},
    {v_half, Group::schedule, "v-half", "the schedule v-half", "schedule"},
    {v_min, Group::schedule, "v-min", "the schedule v-min", "schedule"},
    {dualpipe, Group::schedule, "dualpipe", "the schedule dualpipe", "schedule"},
    {dualpipe_v, Group::schedule, "dualpipe-v", "the schedule dualpipe-v", "schedule"},
    {chimera, Group::schedule, "chimera", "the schedule chimera", "schedule"},
    {hanayo, Group::schedule, "hanayo", "the schedule hanayo", "schedule"},
    {seq_1f1b, Group::schedule, "seq-1f1b", "the schedule seq-1f1b", "schedule"},
    {bpipe, Group::schedule, "bpipe", "the schedule bpipe", "schedule"},
    {pipedream, Group::schedule, "pipedream", "the schedule pipedream", "schedule"},
    {pipedream_2bw, Group::schedule, "pipedream-2bw", "the schedule pipedream-2bw", "schedule"},
    {schedule_of_file, Group::schedule, "schedule of a file", "a schedule of a file", "schedule"},
    {overlapped_pairs, Group::schedule_property, "overlapped pairs", "overlapped pairs of F and B", "schedule"},
    {two_replicas, Group::schedule_property, "two replicas", "a schedule that trains two replicas: {schedule}",
     "schedule"},
    {updates_within, Group::schedule_property, "updates within a step",
     "a schedule that updates weights within a step: {schedule}", "schedule"},
    {slices, Group::schedule_property, "slices of sequences", "a schedule of slices of sequences: {schedule}",
     "schedule"},
    {unequal_slices, Group::schedule_property, "unequal slices", "slices of different lengths", "schedule"},
    {evictions, Group::schedule_property, "evictions", "a schedule that evicts activations: {schedule}", "schedule"},
    {made_for_times, Group::schedule_property, "cost-driven", "a schedule that is made for times: {schedule}",
     "schedule"},
    {whole_head, Group::schedule_property, "whole head", "the whole head of {schedule}", "schedule"},
    {split_uniform, Group::split, "uniform", "the split uniform", "split"},
    {split_by_parameters, Group::split, "parameters", "the split parameters", "split"},
    {split_dynamic, Group::split, "dynamic", "the split dynamic", "split"},
    {split_counts, Group::split, "layers per stage", "a split by numbers of layers", "split"},
    {split_layout, Group::split, "layout string", "a split by a layout string", "split"},
    {full_attention, Group::model, "full attention", "full attention", "model"},
    {sliding_attention, Group::model, "sliding attention", "sliding attention", "model"},
    {bidirectional_attention, Group::model, "bidirectional attention", "bidirectional attention", "model"},
    {bidirectional_window, Group::model, "bidirectional window", "bidirectional attention in a window", "model"},
    {bidirectional_text, Group::model, "bidirectional text", "bidirectional attention over text", "model"},
    {attention_sinks, Group::model, "attention sinks", "attention with sinks", "model"},
    {other_value_size, Group::model, "values of another size", "attention whose values have another size than its keys",
     "model"},
    {latent_attention, Group::model, "mla", "multi-head latent attention", "model"},
    {gated_delta, Group::model, "linear (gated delta rule)", "the gated delta rule (linear)", "model"},
    {channel_gated_delta, Group::model, "gated delta rule with a gate per channel",
     "the gated delta rule with a gate per channel", "model"},
    {lightning, Group::model, "lightning", "lightning attention", "model"},
    {mamba, Group::model, "mamba", "the mixer mamba", "model"},
    {mamba2, Group::model, "mamba2", "the mixer mamba2", "model"},
    {dense_mlp, Group::model, "dense MLP", "a dense MLP", "model"},
    {geglu, Group::model, "geglu", "a dense MLP with the activation geglu", "model"},
    {relu2, Group::model, "relu2", "a dense MLP with the activation relu2", "model"},
    {experts, Group::model, "mixture of experts", "a mixture of experts", "model"},
    {other_expert_activation, Group::model, "experts without SwiGLU",
     "a mixture of experts with another activation than SwiGLU", "model"},
    {expert_biases, Group::model, "experts with biases", "a mixture of experts with biases", "model"},
    {parallel_experts, Group::model, "experts beside attention", "experts beside attention", "model"},
    {tied_embeddings, Group::model, "tied embeddings", "a tied embedding's table", "model"},
    {tied_over_ranks, Group::model, "tied embeddings on two ranks", "a tied embedding's table on two ranks", "model"},
    {mtp, Group::model, "mtp", "multi-token prediction", "model"},
    {images, Group::model, "images", "a model of images", "model"},
    {image_positions, Group::model, "images without learned positions",
     "a model of images with other positions than learned ones", "model"},
    {cpu, Group::machine, "CPU machine", "a machine of CPUs", "cluster.machine"},
    {gpu, Group::machine, "GPU machine", "a machine of GPUs", "cluster.machine"},
    {no_host, Group::machine, "machine without host numbers", "a machine that says nothing of its host",
     "cluster.machine"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < feature_count; ++i) {
    if (index_of(all_facts[i].feature) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const FeatureFacts& facts_of(Feature feature) { return all_facts.at(index_of(feature)); }

std::string_view name_of(FeatureGroup group) {
  constexpr std::array<std::string_view, feature_group_count> names = {
      "Mesh",      "Tensor parallelism",      "Data parallelism", "Vocabulary", "Training", "Offload",
      "Schedules", "Properties of schedules", "Splits",           "Model",      "Machine"};
  return names.at(static_cast<std::size_t>(group));
}

std::optional<Feature> find_schedule_feature(std::string_view name) {
  for (const FeatureFacts& facts : all_facts) {
    if (facts.group == FeatureGroup::schedule && facts.feature != schedule_of_file && facts.name == name) {
      return facts.feature;
    }
  }
  return std::nullopt;
}

}  // namespace plumb
