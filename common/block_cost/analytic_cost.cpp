#include "common/block_cost/analytic_cost.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"

namespace plumb {
namespace {

constexpr std::int64_t fp32_bytes = element_bytes(ElementType::fp32);

// Of a matmul the adapter's own part, or itself: of a column-parallel one A is whole, of a row-parallel one B.
TensorSplit split_of_part(TensorSplit split, std::string_view part) {
  if (part == "lora_a") return split == TensorSplit::inputs ? split : TensorSplit::none;
  if (part == "lora_b") return split == TensorSplit::outputs ? split : TensorSplit::none;
  return split;
}

// How a tensor group divides a parameter: as the operation of its name, whose weights or table it is. Biases of
// row-parallel matmuls are whole on every rank, as are norms and what no operation names.
TensorSplit split_of(const Parameter& parameter, const std::vector<Operation>& operations) {
  if (parameter.name == "embedding.weight" || parameter.name == "head.weight") return TensorSplit::outputs;
  const std::size_t dot = parameter.name.rfind('.');
  std::string_view owner = std::string_view(parameter.name).substr(0, dot);
  const std::string_view part = owner.substr(owner.rfind('.') + 1);
  if (part == "lora_a" || part == "lora_b") owner = owner.substr(0, owner.rfind('.'));
  const bool bias = std::string_view(parameter.name).substr(dot + 1) == "bias";
  for (const Operation& operation : operations) {
    const bool same = owner == operation.name || owner.ends_with("." + operation.name);
    if (!same) continue;
    return bias && operation.split == TensorSplit::inputs ? TensorSplit::none : split_of_part(operation.split, part);
  }
  return TensorSplit::none;
}

// Weights in fp32 are read and written; beside 16-bit weights stands an fp32 master copy among the optimizer's states,
// and the weights are only written. Gradients are read and cleared, states read and written.
Bytes optimizer_traffic(const StateBytes& states, const Training& training) {
  const std::int64_t weight_passes = training.precision == ElementType::fp32 ? 2 : 1;
  return weight_passes * states.trained + std::int64_t{2} * states.gradients + std::int64_t{2} * states.optimizer;
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(std::llround(bytes))}; }

// No block is that large; also the sum over the slices of one, each of which may be as large as its largest, is exact.
void require_countable_block(double bytes, const Scenario& scenario) {
  constexpr double most = 9'007'199'254'740'992.0;
  if (bytes <= most) return;
  const Training& training = scenario.training;
  throw InputError("training",
                   "activations of one block, of a microbatch of " + std::to_string(training.microbatch) + " × " +
                       std::to_string(training.sequence) + " tokens, are larger than 8 PiB",
                   std::string("a shorter sequence") + (training.microbatch > 1 ? ", a smaller microbatch" : "") +
                       (scenario.software.flash_attention ? "" : ", or software with flash attention"));
}

// Of one rank of a tensor group: what stands between the divided matmuls is divided too, the rest only with sequence
// parallelism. The gradient of a row-parallel matmul's output is as wide as the layer.
struct Shares {
  double inside;
  double outside;
};
double kept_share(const Operation& operation, const Shares& shares) {
  return operation.split == TensorSplit::none ? shares.outside : shares.inside;
}
double kept_for_weight_share(const Operation& operation, const Shares& shares) {
  const bool divided = operation.split == TensorSplit::outputs || operation.split == TensorSplit::inside;
  return divided ? shares.inside : shares.outside;
}

// x·A of an adapter's matmul, whole on every rank unless its tokens are divided.
double adapter_bytes(const Operation& operation) {
  return operation.tuning.adapter_rank > 0 ? operation.kept_bytes : 0;
}

// The gradient of a table is made dense: cleared, written, added to the main one.
Seconds table_gradient_time(const BlockShapes& shapes, const Scenario& scenario) {
  double rows = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.name == "embedding.weight" && !parameter.frozen) rows = static_cast<double>(elements(parameter));
  }
  const auto each = static_cast<double>(3 * element_bytes(scenario.software.gradients));
  return streaming_time(scenario.cluster.machine.device, each * rows / scenario.layout.tensor.degree);
}

Seconds optimizer_time(ParameterShare parameters, const Scenario& scenario) {
  const double given = scenario.software.optimizer_bytes * static_cast<double>(parameters.trained);
  const StateBytes states = state_bytes(parameters, scenario.training, scenario.software.gradients);
  const double bytes = given > 0 ? given : static_cast<double>(optimizer_traffic(states, scenario.training).value);
  return streaming_time(scenario.cluster.machine.device, bytes);
}

// What of a block's times and bytes a recompute inside the backward changes.
void redo_inside_backward(ComputeCost& cost, const Scenario& scenario, Seconds redone, Bytes kept_of_redone) {
  if (scenario.training.recompute.mode != RecomputeMode::selective) return;
  cost.input_gradient += redone;
  cost.kept_bytes -= kept_of_redone;
  cost.input_gradient_workspace_bytes += kept_of_redone;
}

}  // namespace

void load_experts(std::vector<Operation>& operations, double load) {
  for (Operation& operation : operations) {
    if (!operation.name.starts_with("mlp.experts.")) continue;
    operation.shape.times *= load;
    for (Flops* flops : {&operation.forward, &operation.input_gradient, &operation.weight_gradient}) {
      *flops = *flops * load;
    }
    for (double* bytes : {&operation.kept_bytes, &operation.kept_for_weight_bytes, &operation.streamed.forward,
                          &operation.streamed.input_gradient, &operation.streamed.weight_gradient}) {
      *bytes *= load;
    }
  }
}

ParameterShare count_of_rank(const BlockShapes& shapes, int tensor) {
  ParameterShare sum;
  for (const Parameter& parameter : shapes.parameters) {
    const bool whole = tensor == 1 || split_of(parameter, shapes.operations) == TensorSplit::none;
    const std::int64_t part = whole ? elements(parameter) : (elements(parameter) + tensor - 1) / tensor;
    sum.all += part;
    sum.trained += parameter.frozen ? 0 : part;
  }
  return sum;
}

void set_states(ComputeCost& cost, ParameterShare parameters, const Training& training, ElementType gradients) {
  const StateBytes states = state_bytes(parameters, training, gradients);
  cost.parameters = parameters.all;
  cost.parameter_bytes = states.parameters;
  cost.gradient_bytes = states.gradients;
  cost.optimizer_bytes = states.optimizer;
}

KernelContext kernel_context(const Scenario& scenario, Slice slice) {
  const TensorLayout& tensor = scenario.layout.tensor;
  return {.sequence = scenario.training.sequence,
          .microbatch = scenario.training.microbatch,
          .precision = scenario.training.precision,
          .tensor = tensor.degree,
          .sequence_parallel = tensor.sequence_parallel && tensor.degree > 1,
          .software = scenario.software,
          .slice = slice};
}

ComputeCost analytic_cost(const BlockShapes& shapes, const Scenario& scenario, Slice slice) {
  const Training& training = scenario.training;
  const Machine machine = machine_in_training(scenario);
  const int tensor = scenario.layout.tensor.degree;
  const KernelContext context = kernel_context(scenario, slice);
  const GroupPlacement group = placement(scenario.layout, MeshAxis::tensor, scenario.cluster);
  const PhaseTimes times = phase_times(block_kernels(shapes.operations, context), machine, group);

  const Shares shares{.inside = 1.0 / tensor, .outside = context.sequence_parallel ? 1.0 / tensor : 1.0};
  const double tokens = static_cast<double>(training.microbatch) * static_cast<double>(tokens_of(context));
  double kept = 0;
  double kept_for_weight = 0;
  double kept_of_redone = 0;
  double largest_kept = 0;
  for (const Operation& operation : shapes.operations) {
    const double adapter = adapter_bytes(operation);  // W also has its gradient
    const double bytes = tokens * ((operation.kept_bytes - adapter) * kept_share(operation, shares) + adapter);
    kept += bytes;
    kept_for_weight +=
        tokens *
        ((operation.kept_for_weight_bytes - 2 * adapter) * kept_for_weight_share(operation, shares) + 2 * adapter);
    if (makes_probabilities(operation)) kept_of_redone += bytes;
  }
  for (const Operation& operation : shapes.made.empty() ? shapes.operations : shapes.made) {
    largest_kept = std::max(largest_kept, tokens * operation.kept_bytes * kept_share(operation, shares));
  }
  require_countable_block(std::max({kept, kept_for_weight, largest_kept}) * slice.of, scenario);
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role != ParameterRole::lookup && !parameter.frozen)
      largest_parameter = std::max(largest_parameter, elements(parameter));
  }
  const Bytes boundary = boundary_of_rank(scenario) / slice.of;

  ComputeCost cost;
  const ParameterShare parameters = count_of_rank(shapes, tensor);
  set_states(cost, parameters, training, scenario.software.gradients);
  cost.forward = times.forward;
  cost.input_gradient = times.input_gradient;
  cost.weight_gradient = times.weight_gradient + table_gradient_time(shapes, scenario);
  cost.hidden_in_backward = times.hidden;
  cost.kept_bytes = whole(kept);
  cost.kept_for_weight_bytes = whole(kept_for_weight);
  cost.forward_workspace_bytes = boundary + whole(largest_kept);
  cost.input_gradient_workspace_bytes = std::int64_t{2} * boundary + whole(largest_kept);
  cost.weight_gradient_workspace_bytes = {fp32_bytes * largest_parameter / tensor};
  redo_inside_backward(cost, scenario, times.redone, whole(kept_of_redone));
  cost.optimizer = optimizer_time(parameters, scenario);
  return cost;
}

}  // namespace plumb
