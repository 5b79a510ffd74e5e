#include "common/block_cost/analytic_cost.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"

namespace plumb {
namespace {

constexpr std::int64_t fp32_bytes = element_bytes(ElementType::fp32);

// Among how many ranks a parameter is divided: as the weight of its name in the block's sites. Of an adapter's matrices
// that are whole but for the dimension that they share with theirs: A for the inputs, B for the outputs.
int ways_of(const Parameter& parameter, const PlacedBlock& placed) {
  const std::string_view name = without_layer_prefix(parameter.name);
  const bool a = name.ends_with(".lora_a.weight");
  const bool b = name.ends_with(".lora_b.weight");
  const std::string_view owner = name.substr(0, name.rfind('.', name.rfind('.') - 1));
  for (const PlacedSite& site : placed.sites) {
    for (const PlacedTensor& weight : site.weights) {
      if (weight.whole.name == name) return ways_of(placed.mesh, weight);
      if (!(a || b) || weight.whole.name != std::string(owner) + ".weight") continue;
      const MatmulWays ways = matmul_ways(placed.mesh, site);
      return a ? ways.inputs : ways.outputs;
    }
  }
  return 1;
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

bool multiplies(const Operation& operation) {
  return is_matmul(operation.kind) || operation.kind == OperationKind::lookup;
}

// What part of a site's output a rank has behind a move; without one, of all that its site reads and makes.
double share_behind(const PlacedMove* move, const PlacedSite& site, const PlacedBlock& placed) {
  if (move == nullptr) return share_of(placed.mesh, site);
  return static_cast<double>(move->move.elements_to) / static_cast<double>(elements(site.outputs.front().whole.shape));
}

// What part of what an operation keeps until I one rank holds: of its work, of products of their output; of which
// experts each token goes to, as it is dispatched.
double kept_share(const Operation& operation, const PlacedBlock& placed) {
  const PlacedSite& site = site_of(placed, site_name(operation));
  if (multiplies(operation)) return 1.0 / ways_of(placed.mesh, site.kept.front());
  const bool routes = operation.kind == OperationKind::routing;
  const std::string& output = site.outputs.front().whole.name;
  return share_behind(routes ? find_move(placed, Phase::forward, Role::input, output) : nullptr, site, placed);
}

// The same of what waits for W: output gradients of products as their site makes the output, inputs of products as
// these read them. What I has gathered is held until W.
double waiting_share(const Operation& operation, const PlacedBlock& placed) {
  const PlacedSite& site = site_of(placed, site_name(operation));
  const PlacedTensor& output = site.outputs.front();
  if (multiplies(operation)) return 1.0 / ways_of(placed.mesh, output);
  return share_behind(find_move(placed, Phase::input_gradient, Role::input, output.whole.name), site, placed);
}

// x·A of an adapter's matmul, whole on every rank unless its tokens are divided.
double adapter_bytes(const Operation& operation) {
  return operation.tuning.adapter_rank > 0 ? operation.kept_bytes : 0;
}

// The most that a move of the block has on either side of it beyond a boundary: with sequence parallelism all tokens.
Bytes moved_whole(const BlockShapes& shapes, const Training& training, Bytes boundary, int slices) {
  std::int64_t largest = 0;
  for (const PlacedMove& each : shapes.placed.moves) {
    if (!each.move.collective || each.role == Role::statistics) continue;
    largest = std::max({largest, each.move.elements_from, each.move.elements_to});
  }
  const Bytes whole{largest * element_bytes(training.precision) / slices};
  return std::max(whole - boundary, Bytes{});
}

// Whether several products give back the gradient of one value that is then moved.
bool adds_up_before_move(const BlockShapes& shapes, const Software& software) {
  if (software.fused_projections) return false;
  return std::ranges::any_of(shapes.placed.moves, [&](const PlacedMove& each) {
    if (!each.move.collective || each.role != Role::input_gradient) return false;
    return std::ranges::count_if(shapes.placed.sites, [&](const PlacedSite& site) {
             return is_matmul(site.kind) && site.inputs.front().whole.name == each.tensor;
           }) > 1;
  });
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

ParameterShare count_of_rank(const BlockShapes& shapes) {
  ParameterShare sum;
  for (const Parameter& parameter : shapes.parameters) {
    const std::int64_t ways = ways_of(parameter, shapes.placed);
    const std::int64_t part = (elements(parameter) + ways - 1) / ways;
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
  return {.sequence = scenario.training.sequence,
          .microbatch = scenario.training.microbatch,
          .precision = scenario.training.precision,
          .software = scenario.software,
          .slice = slice};
}

ComputeCost analytic_cost(const BlockShapes& shapes, const Scenario& scenario, Slice slice) {
  const Training& training = scenario.training;
  const Machine machine = machine_in_training(scenario);
  const KernelContext context = kernel_context(scenario, slice);
  const GroupPlacement group = placement(scenario.layout, MeshAxis::tensor, scenario.cluster);
  const PhaseTimes times = phase_times(block_kernels(shapes.operations, context, shapes.placed), machine, group);

  const double tokens = static_cast<double>(training.microbatch) * static_cast<double>(tokens_of(context));
  double kept = 0;
  double kept_for_weight = 0;
  double kept_of_redone = 0;
  double largest_kept = 0;
  for (const Operation& operation : shapes.operations) {
    const double adapter = adapter_bytes(operation);  // W also has its gradient
    const double share = kept_share(operation, shapes.placed);
    const double bytes = tokens * ((operation.kept_bytes - adapter) * share + adapter);
    kept += bytes;
    kept_for_weight +=
        tokens *
        ((operation.kept_for_weight_bytes - 2 * adapter) * waiting_share(operation, shapes.placed) + 2 * adapter);
    if (makes_probabilities(operation)) kept_of_redone += bytes;
  }
  for (const Operation& operation : shapes.made.empty() ? shapes.operations : shapes.made) {
    largest_kept = std::max(largest_kept, tokens * operation.kept_bytes * kept_share(operation, shapes.placed));
  }
  require_countable_block(std::max({kept, kept_for_weight, largest_kept}) * slice.of, scenario);
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role == ParameterRole::lookup || parameter.frozen) continue;
    largest_parameter = std::max(largest_parameter, elements(parameter) / ways_of(parameter, shapes.placed));
  }
  const Bytes boundary = boundary_of_rank(scenario) / slice.of;

  ComputeCost cost;
  const ParameterShare parameters = count_of_rank(shapes);
  set_states(cost, parameters, training, scenario.software.gradients);
  cost.forward = times.forward;
  cost.input_gradient = times.input_gradient;
  cost.weight_gradient = times.weight_gradient + table_gradient_time(shapes, scenario);
  cost.hidden_in_backward = times.hidden;
  cost.kept_bytes = whole(kept);
  cost.kept_for_weight_bytes = whole(kept_for_weight);
  const Bytes moved = moved_whole(shapes, training, boundary, slice.of);
  cost.forward_workspace_bytes = boundary + moved + whole(largest_kept);
  const std::int64_t gradients = adds_up_before_move(shapes, scenario.software) ? 4 : 2;
  cost.input_gradient_workspace_bytes = gradients * (boundary + moved) + whole(largest_kept);
  cost.weight_gradient_workspace_bytes = {fp32_bytes * largest_parameter};
  redo_inside_backward(cost, scenario, times.redone, whole(kept_of_redone));
  cost.optimizer = optimizer_time(parameters, scenario);
  return cost;
}

}  // namespace plumb
