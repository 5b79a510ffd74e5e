#include "common/plan/parts_json.hpp"

#include <algorithm>
#include <functional>

#include "common/base/document/json_fields.hpp"
#include "common/base/document/json_lister.hpp"
#include "common/base/excerpt.hpp"
#include "common/cluster/cluster_ranges.hpp"

namespace plumb {

static std::vector<std::string> enum_names(DeviceType) { return {"cpu", "cuda"}; }
static std::vector<std::string> enum_names(ElementType) {
  return names_of({ElementType::fp32, ElementType::bf16, ElementType::fp16, ElementType::fp64, ElementType::int64});
}
static std::vector<std::string> enum_names(RecomputeMode) {
  return {"none", "selective", "full", "first_layers", "every_nth_layer"};
}
static std::vector<std::string> enum_names(Optimizer) { return optimizer_names(); }

template <class Archive, class Value>
static void fields(Archive& archive, Sourced<Value>& x) {
  archive("value", x.value, "The number, in the unit of the key.");
  archive("source", x.source, "Where it is from.");
  archive("uncertainty_fraction", x.uncertainty, "One standard deviation, relative to the value.");
}

template <class Archive>
static void fields(Archive& archive, DeviceProfile& x) {
  archive("name", x.name);
  archive("type", x.type);
  archive("peak_flops_per_s", x.peak);
  archive("matmul_efficiency_fraction", x.matmul_efficiency);
  archive("matmul_depth", x.matmul_depth);
  archive("multiprocessors", x.multiprocessors);
  archive("memory_bandwidth_bytes_per_s", x.memory_bandwidth);
  archive("memory_efficiency_fraction", x.memory_efficiency);
  archive("attention_efficiency_fraction", x.attention_efficiency);
  archive("kernel_gap_s", x.kernel_gap);
  archive("launch_time_s", x.launch_time);
  archive("message_multiprocessors", x.message_multiprocessors);
  archive("memory_bytes", x.memory);
  archive("framework_memory_bytes", x.framework_memory);
}

template <class Archive>
static void fields(Archive& archive, Link& x) {
  archive("latency_s", x.latency);
  archive("bandwidth_bytes_per_s", x.bandwidth);
}

template <class Archive>
static void fields(Archive& archive, HostProfile& x) {
  archive("link", x.link);
  archive("devices_per_link", x.devices_per_link);
  archive("memory_bytes", x.memory);
  archive("memory_bandwidth_bytes_per_s", x.memory_bandwidth);
}

template <class Archive>
static void fields(Archive& archive, Machine& x) {
  archive("name", x.name);
  archive("device", x.device);
  archive("devices", x.devices);
  archive("cores", x.cores);
  archive("inside", x.inside);
  archive("outside", x.outside);
  archive("nics", x.nics);
  archive("devices_per_switch", x.devices_per_switch);
  archive("uplink_bytes_per_s", x.uplink);
  archive("collective_bandwidth_bytes_per_s", x.collective_bandwidth);
  archive("collective_latency_s", x.collective_latency);
  archive("collective_latency_per_rank_s", x.collective_latency_per_rank);
  archive("switch_bandwidth_bytes_per_s", x.switch_bandwidth);
  archive.unless_usual("host", x.host);
}

template <class Archive>
static void fields(Archive& archive, Cluster& x) {
  archive("machine", x.machine, "The machine.");
  archive("nodes", x.nodes);
  archive("ranks", x.ranks);
  archive("nodes_per_leaf", x.nodes_per_leaf, "Machines under a leaf switch; 0 if there is none.");
  archive("oversubscription", x.oversubscription);
  archive("nodes_per_site", x.nodes_per_site, "Machines of a site; 0 if there is one site.");
  archive("between_sites", x.between_sites, "Link between two sites.");
}

template <class Archive>
static void fields(Archive& archive, Recompute& x) {
  archive("mode", x.mode, "Recomputed activations.");
  archive("layers", x.layers, "The number of first_layers and every_nth_layer; else 0.");
}

template <class Archive>
static void fields(Archive& archive, Offload& x) {
  archive("optimizer", x.optimizer, "Optimizer states are in the host's memory.");
  archive.unless_usual("activations", x.activations, {}, "Saved activations are in the host's memory.");
  archive.unless_usual("parameters", x.parameters, {}, "Sharded weights are in the host's memory.");
}

static std::vector<std::string> enum_names(LoraTarget) { return lora_target_names(); }

template <class Archive>
static void fields(Archive& archive, Lora& x) {
  archive("rank", x.rank);
  archive("alpha", x.alpha);
  archive("targets", x.targets);
}

template <class Archive>
static void fields(Archive& archive, Training& x) {
  archive("sequence", x.sequence);
  archive("global_batch", x.global_batch);
  archive("microbatch", x.microbatch);
  archive("precision", x.precision);
  archive("recompute", x.recompute);
  archive.unless_usual("offload", x.offload);
  archive("optimizer", x.optimizer);
  archive("learning_rate", x.learning_rate);
  archive.unless_usual("gradient_clipping", x.gradient_clipping);
  archive("seed", x.seed);
  archive("lora", x.lora);
}

static std::vector<std::string> enum_names(PipelineExchange) { return exchange_names(); }
static std::vector<std::string> enum_names(RecomputeUnit) { return recompute_unit_names(); }

template <class Archive>
static void fields(Archive& archive, GradientBucket& x) {
  archive("parameters", x.parameters);
  archive("parameters_per_rank", x.parameters_per_rank);
  archive("bytes", x.bytes);
  archive("first_stage_only", x.first_stage_only);
}

template <class Archive>
static void fields(Archive& archive, Software& x) {
  archive("name", x.name);
  archive("source", x.source);
  archive("flash_attention", x.flash_attention, "Fused attention; else one that writes all scores.");
  archive("composed", x.composed);
  archive.unless_usual("eager", x.eager);
  archive.unless_usual("eager_norms", x.eager_norms);
  archive("dropout", x.dropout);
  archive("fused_projections", x.fused_projections);
  archive("fused_weight_gradient", x.fused_weight_gradient);
  archive("tensor_overlap", x.tensor_overlap);
  archive("scattered_messages", x.scattered_messages);
  archive("data_overlap", x.data_overlap);
  archive.unless_usual("data_bucket", x.data_bucket);
  archive.unless_usual("copies_overlap", x.copies_overlap);
  archive("optimizer_bytes", x.optimizer_bytes);
  archive("gradients", x.gradients);
  archive("exchange", x.exchange);
  archive("recompute_unit", x.recompute_unit);
  archive("hidden_in_pairs_fraction", x.hidden_in_pairs);
  archive("post_validation", x.post_validation);
  archive("step_overhead_s", x.step_overhead);
}

template <class Archive>
static void fields(Archive& archive, NamedDimension& x) {
  archive("name", x.name, "Name of the dimension.");
  archive("size", x.size, "Size.");
}

template <class Archive>
static void fields(Archive& archive, BoundaryTensor& x) {
  archive("name", x.name, "Name of the tensor.");
  archive("dimensions", x.dimensions, "Dimensions in order.");
  archive("type", x.type, "Type of its elements.");
}

template <class Archive>
static void fields(Archive& archive, BoundaryManifest& x) {
  archive("tensors", x.tensors, "Tensors that cross a stage boundary.");
}

Json to_json(const Cluster& cluster) { return write_fields(cluster); }
Json to_json(const Training& training) { return write_fields(training); }
Json to_json(const Software& software) { return write_fields(software); }
Json to_json(const BoundaryManifest& boundary) { return write_fields(boundary); }

Cluster cluster_from_json(const JsonValue& value) {
  Cluster cluster = read_fields<Cluster>(value);
  require_ranges(cluster, value);
  return cluster;
}

Training training_from_json(const JsonValue& value) {
  constexpr std::int64_t most = std::int64_t{1} << 31;  // of sequence, batches: products stay below 2^63
  for (const char* key : {"sequence", "global_batch", "microbatch"}) (void)value.at(key).integer(1, most);
  Training training = read_fields<Training>(value);
  const JsonValue rate = value.at("learning_rate");
  if (!(training.learning_rate >= 0 && training.learning_rate <= most_learning_rate)) {
    rate.fail("is " + excerpt(to_line(rate.raw())) + ", expected a number from 0 to 1e6");
  }
  if (!(training.gradient_clipping >= 0 && training.gradient_clipping <= most_gradient_norm)) {
    const JsonValue norm = value.at("gradient_clipping");
    norm.fail("is " + excerpt(to_line(norm.raw())) + ", expected a number from 0 to 1e9");
  }
  (void)value.at("seed").integer(0, largest_seed);
  const bool counted = training.recompute.mode == RecomputeMode::first_layers ||
                       training.recompute.mode == RecomputeMode::every_nth_layer;
  if (training.recompute.layers < (counted ? 1 : 0) || (!counted && training.recompute.layers > 0)) {
    value.at("recompute").at("layers").fail("does not agree with the mode");
  }
  if (!training.lora) return training;
  const JsonValue lora = value.at("lora");
  (void)lora.at("rank").integer(1, most);
  const std::vector<LoraTarget>& targets = training.lora->targets;
  if (targets.empty() || std::ranges::adjacent_find(targets, std::ranges::greater_equal()) != targets.end()) {
    lora.at("targets").fail("must name projections in their order, each once");
  }
  return training;
}

Software software_from_json(const JsonValue& value) {
  Software software = read_fields<Software>(value);
  static_cast<void>(value.at("hidden_in_pairs_fraction").fraction());
  if (!(software.optimizer_bytes >= 0)) value.at("optimizer_bytes").fail("must not be negative");
  return software;
}

BoundaryManifest boundary_from_json(const JsonValue& value) { return read_fields<BoundaryManifest>(value); }

std::vector<JsonTable> cluster_tables() { return list_fields<Cluster>("cluster"); }
std::vector<JsonTable> training_tables() { return list_fields<Training>("training"); }
std::vector<JsonTable> software_tables() { return list_fields<Software>("software"); }
std::vector<JsonTable> boundary_tables() { return list_fields<BoundaryManifest>("boundary"); }

}  // namespace plumb
