#include "exec/commands/executed_layout.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <variant>

#include "common/layout/sharding.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "exec/stage/supported.hpp"

namespace plumb::exec {
namespace {

constexpr int largest_named_degree = 64;

// What of a plan is not executed, and what is instead.
struct Missing {
  bool is = false;
  const char* what = "";
  const char* hint = "";
};

void require_none(const Plan& plan, std::span<const Missing> all) {
  for (const Missing& missing : all) {
    if (!missing.is) continue;
    throw InputError(plan.name, "its layout is " + describe(plan.layout) + ": " + missing.what + " is not executed yet",
                     std::string("plan with ") + missing.hint);
  }
}

// Of ZeRO++, and of HSDP's copies. Of a tensor group one device has other blocks than its ranks: there is nothing to
// check them against.
void require_executed_sharding(const Plan& plan, const SessionOptions& options) {
  const DataLayout& data = plan.layout.data;
  const bool tensor = plan.layout.tensor.degree > 1;
  const bool exchanges = data.quantized_gradients > 0;
  const bool copies_beside = data.replicate > 1 && sums_copies_beside_backward(plan, 0);  // stage 0, if only one does
  const std::array all{
      Missing{has_zero_plus_plus(data) && options.device != "cpu", "ZeRO++ on devices",
              "data: {sharding: zero3}, or --device cpu"},
      Missing{data.quantized_weights && !data.reshard_after_forward, "gathering weights once a step as int8",
              "data: {reshard_after_forward: true}, or without quantized_weights"},
      Missing{exchanges && !data.reduces_each_microbatch, "reducing gradients once a step as int4",
              "data: {reduce: each_microbatch}, or without quantized_gradients"},
      Missing{(data.quantized_weights || exchanges) && tensor, "int8 or int4 with a tensor degree",
              "tensor: {degree: 1}, or secondary_shard alone"},
      Missing{copies_beside, "adding up over HSDP's copies beside the backward", "software: {copies_overlap: false}"}};
  require_none(plan, all);
}

// Where messages move on the streams of devices.
bool on_streams(const SessionOptions& options) { return options.device != "cpu" || options.transport == "nccl"; }

// With a data or a tensor degree above 1.
void require_one_sum(const Plan& plan) {
  const std::string alone = plan.layout.data.degree > 1 ? "data: {degree: 1}" : "tensor: {degree: 1}";
  if (replicas(plan.schedule) > 1) {
    throw InputError(plan.name,
                     "its schedule, " + plan.schedule.name +
                         ", trains two replicas in one pipeline: so far with data and tensor degrees of 1 only",
                     "plan with " + alone + ", or with a schedule that trains one, such as zb-h1");
  }
  if (plan.schedule.update_every > 0) {
    throw InputError(plan.name,
                     "its schedule, " + plan.schedule.name +
                         ", updates weights within a step, where gradients of several ranks are not summed",
                     "plan with " + alone + ", or with a schedule that updates once a step, such as 1f1b");
  }
}

// Ranks that share a device copy each other's messages on its streams; of its collectives they have one, the sum of a
// pipeline's two copies of a table.
void require_own_devices(const Plan& plan, const SessionOptions& options) {
  if (options.transport == "nccl" || options.device == "cpu") return;
  throw InputError(plan.name,
                   "its layout is " + describe(plan.layout) +
                       ": ranks that share one device run pipelines alone so far, without data or tensor parallelism",
                   "--transport nccl, which gives each rank a device of its own, --device cpu, or plan with data and "
                   "tensor degrees of 1");
}

TensorLayout of_degree(const Plan& plan, int degree) {
  TensorLayout tensor = plan.layout.tensor;
  tensor.degree = degree;
  return tensor;
}

bool divides(const Plan& plan, int degree) {
  try {
    require_divided(plan.model, plan.training, of_degree(plan, degree));
  } catch (const InputError&) {
    return false;
  }
  return true;
}

void require_divisible_parts(const Plan& plan) {
  try {
    require_divided(plan.model, plan.training, plan.layout.tensor);
  } catch (const InputError& error) {
    std::string allowed;
    for (int degree = 1; degree <= largest_named_degree; ++degree) {
      if (divides(plan, degree)) allowed += (allowed.empty() ? "" : ", ") + std::to_string(degree);
    }
    throw InputError(plan.name, error.problem(), "executed: tensor degrees of " + allowed);
  }
}

bool has_parallel_experts(const Model& model) {
  return std::ranges::any_of(
      model.layers, [](const Layer& layer) { return layer.parallel && std::holds_alternative<MoeMlp>(layer.mlp); });
}

void require_executed_tensor(const Plan& plan, const SessionOptions& options) {
  const TensorLayout& tensor = plan.layout.tensor;
  const std::array all{
      Missing{tensor.asynchronous && on_streams(options), "asynchronous tensor parallelism on a GPU or over NCCL",
              "tensor: {asynchronous: false}, or run it with --device cpu and --transport local or gloo"},
      Missing{plan.training.lora.has_value(), "LoRA with a tensor degree", "tensor: {degree: 1}, or without lora"},
      Missing{plan.model.vision.has_value(), "a model of images with a tensor degree", "tensor: {degree: 1}"},
      Missing{has_parallel_experts(plan.model), "experts beside attention with a tensor degree", "tensor: {degree: 1}"},
      Missing{plan.schedule.slices > 1, "a schedule of slices with a tensor degree",
              "tensor: {degree: 1}, or a schedule of whole sequences, such as 1f1b"},
      Missing{evicts(plan.schedule), "a schedule that evicts activations with a tensor degree",
              "tensor: {degree: 1}, or a schedule without evictions, such as 1f1b"},
      Missing{plan.training.offload.activations, "offload of activations with a tensor degree",
              "tensor: {degree: 1}, or offload without activations"},
      Missing{gathers_messages(plan.software, tensor), "messages that a tensor group scatters and gathers",
              "software without scattered_messages, such as plumb, or tensor: {sequence_parallel: true}"}};
  require_none(plan, all);
  require_divisible_parts(plan);
}

// Of a 2d, 2.5d or 3d tensor layout.
void require_executed_grid(const Plan& plan, const SessionOptions& options) {
  const std::string with = " with a " + grid_text(plan.layout.tensor);
  const std::string lora = "LoRA" + with;
  const std::string slices = "a schedule of slices" + with;
  const std::string evictions = "a schedule that evicts activations" + with;
  const std::string offload = "offload" + with;
  const std::string panels = "panels beside products on a GPU or over NCCL" + with;
  const std::array all{
      Missing{plan.layout.tensor.asynchronous && on_streams(options) && !options.emulate, panels.c_str(),
              "tensor: {asynchronous: false}, or run it with --device cpu and --transport local or "
              "gloo"},
      Missing{plan.training.lora.has_value(), lora.c_str(), "tensor: {kind: 1d}, or without lora"},
      Missing{plan.schedule.slices > 1, slices.c_str(), "a schedule of whole sequences, such as 1f1b"},
      Missing{evicts(plan.schedule), evictions.c_str(), "a schedule without evictions, such as 1f1b"},
      Missing{offloads(plan.training.offload), offload.c_str(), "training: {offload: none}"}};
  require_none(plan, all);
  try {
    require_divided(plan.model, plan.training, plan.layout.tensor);
  } catch (const InputError& error) {
    throw InputError(plan.name, error.problem(), error.hint());
  }
}

void require_executed_vocabulary(const Plan& plan, const SessionOptions& options) {
  require_none(plan, std::array{Missing{plan.layout.vocabulary_barriers > 0 && on_streams(options),
                                        "a vocabulary over the pipeline on a GPU or over NCCL",
                                        "a layout without vocabulary, or run it with --device cpu and --transport "
                                        "local or gloo"}});
}

}  // namespace

void require_executed_layout(const Plan& plan, const SessionOptions& options) {
  if (offloads(plan.training.offload) && options.device != "cpu") {
    throw InputError(plan.name, "it offloads its " + describe(plan.training.offload) + ": so far on hosts alone",
                     "--device cpu, or plan with training: {offload: none}");
  }
  const Layout& layout = plan.layout;
  require_executed_vocabulary(plan, options);
  for (const MeshAxis axis : {MeshAxis::context, MeshAxis::expert}) {
    if (degree(layout, axis) == 1) continue;
    throw InputError(
        plan.name, "its layout is " + describe(layout) + ": so far pipelines, data and tensor parallelism are executed",
        "plan with context and expert degrees of 1");
  }
  if (layout.tensor.sequence_parallel && layout.tensor.degree == 1) {
    throw InputError(plan.name,
                     "sequence parallelism divides tokens among the ranks of a tensor group, and its tensor "
                     "degree is 1",
                     "plan with sequence_parallel: false, or a tensor degree of at least 2");
  }
  if (layout.data.degree == 1 && layout.tensor.degree == 1) return;
  if (has_stage_data(layout)) {
    throw InputError(plan.name, "its layout is " + describe(layout) + ": so far all stages have one data degree",
                     "plan with data: {degree: " + std::to_string(layout.data.degree) + "}");
  }
  require_executed_sharding(plan, options);
  require_one_sum(plan);
  require_own_devices(plan, options);
  if (layout.tensor.degree == 1) return;
  if (is_grid(layout.tensor)) return require_executed_grid(plan, options);
  require_executed_tensor(plan, options);
}

}  // namespace plumb::exec
