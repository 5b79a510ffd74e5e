#include "exec/stage/factory.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>

#include <mutex>
#include <optional>

#include "common/base/error.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/data/data.hpp"
#include "exec/device/blas.hpp"
#include "exec/host/memory.hpp"
#include "exec/stage/head_part.hpp"
#include "exec/stage/modules/lora.hpp"
#include "exec/stage/sharding/host_shard_group.hpp"
#include "exec/stage/sharding/stream_shard_group.hpp"
#include "exec/stage/supported.hpp"
#include "exec/stage/tensor/stream_tensor_group.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
std::shared_ptr<const Corpus> corpus_of(const Plan& plan, const StageOptions& options) {
  require_executed(plan.model, plan.training);
  require_slices_executed(plan.model, plan.training, plan.schedule);
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  const bool accelerator = !c10::Device(options.device).is_cpu();
  track_accelerators(accelerator);
  // Filling what is written anyway would only take time.
  if (accelerator) at::globalContext().setDeterministicFillUninitializedMemory(false);
  if (options.deterministic) make_products_repeatable(options.device);
  return load_corpus(options.data, plan.model, plan.training.sequence);
}

namespace {

// At the first call of its vector functions MKL looks at the processor and picks kernels, and not in a way that bears
// several threads: at about one start in 150 one of four rank threads got another kernel, and with it other last bits
// in its tables of rotary positions. So the first calls are made by one thread while the others wait.
void let_mkl_pick_kernels() {
  static std::once_flag picked;
  std::call_once(picked, [] {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor x = at::ones({8, 8}, type);
      (void)at::exp(x);
      (void)at::mm(x, x);
    }
  });
}

}  // namespace

void compute_on_one_thread() {
  at::set_num_threads(1);
  use_one_blas_thread();
  let_mkl_pick_kernels();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void begin_rank_thread(int rank) {
  compute_on_one_thread();
  count_memory_as(rank);
}

void count_memory_as(int rank) { track_memory_of_thread(rank); }

namespace {

// Null where a rank has its blocks alone.
TensorGroupPtr tensor_group(const Plan& plan, int rank, const StageOptions& options) {
  if (plan.layout.tensor.degree == 1) return {};
  if (options.transport == nullptr)
    throw RunError("rank " + std::to_string(rank), "a tensor group without a transport");
  TensorGroup::Place place{.layout = plan.layout.tensor,
                           .ranks = group(plan.layout, rank, MeshAxis::tensor),
                           .position = coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::tensor)),
                           .patience = options.patience};
  if (options.streams != nullptr) {
    return c10::make_intrusive<StreamTensorGroup>(*options.transport, *options.streams, std::move(place));
  }
  return c10::make_intrusive<TensorGroup>(std::make_shared<Collectives>(*options.transport), std::move(place));
}

// Null where nothing is shared out within actions.
std::shared_ptr<ShardGroup> sharding_group(const Plan& plan, int rank, const StageOptions& options) {
  if (!gathers_in_actions(plan.layout) && !reduces_in_actions(plan.layout)) return nullptr;
  if (options.transport == nullptr) {
    throw RunError("rank " + std::to_string(rank), "shares out its stages without a transport");
  }
  std::vector<int> ranks = shard_group(plan.layout, rank);
  const int prefetch = blocks_ahead(plan.layout, plan.software);
  if (options.streams != nullptr) {
    return std::make_shared<StreamShardGroup>(*options.transport, *options.streams, std::move(ranks), prefetch);
  }
  const DataLayout& data = plan.layout.data;
  HostShardGroup::Place place{.ranks = std::move(ranks),
                              .quantises_weights = data.quantized_weights,
                              .prefetch = prefetch,
                              .patience = options.patience};
  if (data.secondary_shard > 0) place.inside = inside_group(plan.layout, rank);
  if (data.quantized_gradients > 0) {
    place.exchanged_inside = inside_group(plan.layout, rank);
    place.exchanged_across = across_group(plan.layout, rank);
  }
  return std::make_shared<HostShardGroup>(*options.transport, std::move(place));
}

}  // namespace

namespace {

TorchStage& torch_stage(Stage& stage) {
  auto* const found = dynamic_cast<TorchStage*>(&stage);
  if (found == nullptr) throw RunError("stage", "has no weights");
  return *found;
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_stages(const Plan& plan, int rank, const StageOptions& options) {
  const std::shared_ptr<const Corpus> corpus = corpus_of(plan, options);
  const Schedule& schedule = plan.schedule;
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  const TensorGroupPtr group = tensor_group(plan, rank, options);
  const std::shared_ptr<ShardGroup> shards = sharding_group(plan, rank, options);
  const auto part = position_in(shard_group(plan.layout, rank), rank);
  std::optional<TorchStageSettings> of_head;  // of a divided vocabulary, which may need the embedding's table
  std::vector<std::unique_ptr<Stage>> made(stage_slot(schedule, replicas(schedule), 0));
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    for (int stage = 0; stage < all_stages(schedule); ++stage) {
      if (rank_in_replica(schedule, replica, stage) != place) continue;
      TorchStageSettings settings = stage_settings(plan, stage, c10::Device(options.device));
      settings.share.index = data_replica(plan.layout, rank);
      settings.states.index = settings.states.count > 1 ? static_cast<int>(part) : 0;
      settings.sharding.group = shards;
      settings.group = group;
      settings.logs_routing = options.logs_routing;
      settings.weights = options.weights;
      if (sort_of_stage(schedule, stage) == StageSort::head) {
        of_head = std::move(settings);
        continue;
      }
      made[stage_slot(schedule, replica, stage)] = std::make_unique<TorchStage>(std::move(settings), corpus);
    }
  }
  if (!of_head) return made;
  if (of_head->has_table_of_embedding) {
    of_head->table = torch_stage(*made[stage_slot(schedule, 0, embedding_part(schedule, place))]).weights().front();
  }
  const auto slot = stage_slot(schedule, 0, head_part(schedule, place));
  made[slot] = std::make_unique<HeadPart>(std::move(*of_head), corpus, schedule.vocabulary_barriers);
  return made;
}

namespace {

void put(NamedGradients& named, const std::string& name, const at::Tensor& value) {
  const at::Tensor wide = value.cpu().to(at::kFloat).contiguous();
  const float* const data = wide.const_data_ptr<float>();
  named[name].assign(data, data + wide.numel());
}

// Those of make_stages that stand here.
std::vector<TorchStage*> torch_stages(const std::vector<std::unique_ptr<Stage>>& stages) {
  std::vector<TorchStage*> found;
  for (const auto& stage : stages) {
    if (stage) found.push_back(&torch_stage(*stage));
  }
  return found;
}

// Over the same memory.
at::Tensor whole_tensor(NamedGradients& weights, const Parameter& parameter) {
  std::vector<float>& values = weights.at(parameter.name);
  if (static_cast<std::int64_t>(values.size()) != elements(parameter)) {
    throw RunError("parameter " + parameter.name, "is not there as a whole");
  }
  return at::from_blob(values.data(), parameter.shape, at::kFloat);
}

}  // namespace

NamedGradients gradients(const std::vector<std::unique_ptr<Stage>>& stages) {
  NamedGradients named;
  for (const TorchStage* stage : torch_stages(stages)) {
    const StateShard& states = stage->settings().states;
    for (const WeightPtr& weight : stage->trained_weights()) {
      put(named, weight->name, own_gradient_of(*weight, states));
    }
  }
  return named;
}

NamedGradients kept_weights(const std::vector<std::unique_ptr<Stage>>& stages) {
  NamedGradients named;
  for (const TorchStage* stage : torch_stages(stages)) {
    for (const WeightPtr& weight : stage->weights()) put(named, weight->name, weight->kept());
  }
  return named;
}

void merge_adapters(const Plan& plan, NamedGradients& weights) {
  if (!plan.training.lora) return;
  const c10::NoGradGuard no_grad;
  const std::vector<Parameter> all = all_parameters(plan.model, plan.training.lora);
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& parameter : all) by_name.emplace(parameter.name, &parameter);
  for (const Parameter& parameter : all) {
    const std::string owner = parameter.name.substr(0, parameter.name.rfind('.'));
    const auto a = by_name.find(owner + ".lora_a.weight");
    const auto b = by_name.find(owner + ".lora_b.weight");
    if (a == by_name.end() || b == by_name.end() || !parameter.name.ends_with(".weight")) continue;
    const at::Tensor weight = whole_tensor(weights, parameter);
    weight.copy_(merged(weight, whole_tensor(weights, *a->second), whole_tensor(weights, *b->second),
                        scale_of(*plan.training.lora)));
  }
}

std::string routing_name(std::int64_t layer, int microbatch) {
  return "experts of layer " + std::to_string(layer) + ", microbatch " + std::to_string(microbatch);
}

NamedGradients chosen_experts(const std::vector<std::unique_ptr<Stage>>& stages) {
  NamedGradients named;
  for (const TorchStage* stage : torch_stages(stages)) {
    if (stage->routing() == nullptr) continue;
    const BatchShare& share = stage->settings().share;
    for (const auto& [of, chosen] : stage->routing()->chosen) {
      put(named, routing_name(of.first, of.second * share.count + share.index), chosen);
    }
  }
  return named;
}

Payload allocate_payload(std::size_t bytes) {
  std::shared_ptr<void> buffer = tracked_buffer(bytes);
  auto* const data = static_cast<std::byte*>(buffer.get());
  return {.owner = std::move(buffer), .data = data, .size = bytes};
}

void memory_moved(const std::byte* data, int to_rank) { move_memory(data, to_rank); }
Bytes held_bytes(int rank) { return current_memory(rank); }
Bytes peak_bytes(int rank) { return peak_memory(rank); }
void reset_peak(int rank) { reset_peak_memory(rank); }

}  // namespace plumb::exec
