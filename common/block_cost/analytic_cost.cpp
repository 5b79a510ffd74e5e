#include "common/block_cost/analytic_cost.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/gathered.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/block_cost/offloaded.hpp"
#include "common/program/program_memory.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"

namespace plumb {
namespace {

constexpr std::int64_t fp32_bytes = element_bytes(ElementType::fp32);

// Of a parameter, elements of one rank: of the weight of its name, as it is stored. Of an adapter's matrices those are
// whole but for the dimension that they share with theirs: A for the inputs, B for the outputs.
std::int64_t elements_of_rank(const Parameter& parameter, const PlacedBlock& placed) {
  const std::string_view name = without_layer_prefix(parameter.name);
  const bool a = name.ends_with(".lora_a.weight");
  const bool b = name.ends_with(".lora_b.weight");
  if (!a && !b) {
    const auto is_it = [&](const PlacedWeight& each) { return each.stored.whole.name == name; };
    // A norm that follows nothing (a plan may count more than its layer has) has no site, and is whole.
    return std::ranges::any_of(placed.weights, is_it) ? stored_elements(placed, name) : elements(parameter);
  }
  const std::string owner = std::string(name.substr(0, name.rfind('.', name.rfind('.') - 1))) + ".weight";
  for (const PlacedSite& site : placed.sites) {
    for (const PlacedTensor& weight : site.weights) {
      if (weight.whole.name != owner) continue;
      const MatmulWays ways = matmul_ways(placed.mesh, site);
      return elements(parameter) / (a ? ways.inputs : ways.outputs);
    }
  }
  return elements(parameter);
}

// Weights in fp32 are read and written; beside 16-bit weights stands an fp32 master copy among the optimizer's states,
// and the weights are only written. Gradients are read where a rank updates and cleared everywhere, states read and
// written. Where they are clipped they are also read for their norm, and scaled. What the host updates leaves the
// device no more than to clear and to clip.
Bytes optimizer_traffic(const StateBytes& states, ParameterShare parameters, const Scenario& scenario) {
  const std::int64_t weight_passes = scenario.training.precision == ElementType::fp32 ? 2 : 1;
  const bool parts = reduces_in_actions(scenario.layout);
  const std::int64_t held = parts ? parameters.late + parameters.accumulated : parameters.trained;
  const std::int64_t clipping = scenario.training.gradient_clipping > 0 ? 3 * parameters.updated : 0;
  const bool here = !scenario.training.offload.optimizer;
  const std::int64_t gradients = (here ? parameters.updated : 0) + held + clipping;
  if (!here) return {gradients * element_bytes(scenario.software.gradients)};
  return weight_passes * states.updated + Bytes{gradients * element_bytes(scenario.software.gradients)} +
         std::int64_t{2} * states.optimizer;
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(std::llround(bytes))}; }

// No block is that large; also the sum over the slices of one, each counted as if all were like it, is exact.
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

// The most that a move of the block has on either side of it beyond a boundary: with sequence parallelism all tokens.
Bytes moved_whole(const BlockShapes& shapes, const Training& training, Bytes boundary) {
  std::int64_t largest = 0;
  for (const PlacedMove& each : shapes.placed.moves) {
    if (!each.move.collective || each.role == Role::statistics) continue;
    largest = std::max({largest, each.move.elements_from, each.move.elements_to});
  }
  const Bytes whole{largest * element_bytes(training.precision)};
  return std::max(whole - boundary, Bytes{});
}

// The most that W gathers of one value: it goes before the next one comes.
Bytes gathered_for_weight(const BlockShapes& shapes, const Training& training) {
  std::int64_t largest = 0;
  for (const PlacedMove& each : shapes.placed.moves) {
    const bool gathers = each.move.collective && each.phase == Phase::weight_gradient;
    if (gathers && each.role != Role::weight_gradient) largest = std::max(largest, each.move.elements_to);
  }
  return {largest * element_bytes(training.precision)};
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
Seconds table_gradient_time(const BlockShapes& shapes, const Scenario& scenario, const DeviceProfile& device) {
  std::int64_t table = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.name == "embedding.weight" && !parameter.frozen) table = elements_of_rank(parameter, shapes.placed);
  }
  // Of a grid it is larger as it is made, before the ranks scatter it.
  std::int64_t made = table;
  for (const PlacedSite& site : shapes.placed.sites) {
    if (table > 0 && site.kind == OperationKind::lookup) made = elements(site.weights.front().local);
  }
  const std::int64_t bytes = element_bytes(scenario.software.gradients) * (2 * made + table);
  return streaming_time(device, static_cast<double>(bytes));
}

Seconds optimizer_time(ParameterShare parameters, const Scenario& scenario, const DeviceProfile& device) {
  const double of_kernels = scenario.training.offload.optimizer ? 0 : scenario.software.optimizer_bytes;
  const double given = of_kernels * static_cast<double>(parameters.updated);
  const StateBytes states = state_bytes(parameters, scenario.training, scenario.software.gradients);
  const double bytes = given > 0 ? given : static_cast<double>(optimizer_traffic(states, parameters, scenario).value);
  return streaming_time(device, bytes);
}

// Of a grid, which gathers operands and scatters results of each product: of I there is the output's gradient too.
// `of_element`: bytes of each of a weight's gradient as it is made.
void hold_gathered(ComputeCost& cost, const BlockWork& work, const Training& training, Bytes boundary,
                   std::int64_t of_element) {
  const BlockShapes& shapes = work.shapes;
  const Gathered more = gathered(shapes.placed, training.precision);
  const LargestMoment largest = largest_moment(shapes.operations, work.program.kept, shapes.placed, training.precision);
  cost.kept_bytes += more.kept;
  cost.kept_for_weight_bytes += more.kept_for_weight;
  cost.forward_workspace_bytes = boundary + largest.forward;
  cost.input_gradient_workspace_bytes = std::int64_t{2} * boundary + largest.input_gradient;
  cost.weight_gradient_workspace_bytes = Bytes{of_element * more.weight_gradient} + more.inputs_for_weight;
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

namespace {

ParameterShare share_of(const std::vector<WeightOfRank>& weights, std::int64_t shards) {
  ParameterShare sum;
  for (const WeightOfRank& weight : weights) {
    const std::int64_t part = largest_part(weight.elements, shards);
    sum.all += weight.elements;
    sum.stored += part;
    if (!weight.trained) continue;
    sum.trained += weight.elements;
    sum.updated += part;
    (weight.late ? sum.late : sum.accumulated) += weight.late ? weight.elements : part;
  }
  return sum;
}

std::vector<WeightOfRank> counted_weights(const BlockShapes& shapes) {
  std::vector<WeightOfRank> weights;
  for (const Parameter& parameter : shapes.parameters) {
    weights.push_back({.elements = elements_of_rank(parameter, shapes.placed), .trained = !parameter.frozen});
  }
  return weights;
}

}  // namespace

std::vector<WeightOfRank> weights_of_rank(const BlockWork& work, const Scenario& scenario) {
  const std::vector<StepMove>& once = work.program.once;  // of tensor ranks
  std::vector<WeightOfRank> weights = counted_weights(work.shapes);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string& full = work.shapes.parameters[i].name;
    const std::string_view name = without_layer_prefix(full);
    const auto sums = [&](const StepMove& move) { return name == move.tensor || name == move.tensor + ".weight"; };
    weights[i].late = (scenario.model.tied_embeddings && full == "embedding.weight") || std::ranges::any_of(once, sums);
  }
  return weights;
}

ParameterShare share_of_rank(const BlockWork& work, const Scenario& scenario) {
  return share_of(weights_of_rank(work, scenario), state_shards(scenario.layout));
}

void set_tensor_gradients(ComputeCost& cost, const BlockProgram& program, const TensorLayout& tensor) {
  if (!is_grid(tensor)) {
    cost.tensor_gradient_bytes = whole(summed_once(program, tensor.degree));
    return;
  }
  cost.grid_sums.clear();
  for (const StepMove& move : program.once) add_to(cost.grid_sums, {.over = move.over, .bytes = whole(move.bytes)});
}

namespace {

// Elements as ParameterShare counts them, w and g the bytes of a weight and of a gradient.
void share_out(ComputeCost& cost, ParameterShare parameters, const StateBytes& states, const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  const std::int64_t g = element_bytes(scenario.software.gradients);
  DataMoves& moves = cost.data_moves;
  if (!shards_weights(layout)) {
    cost.gathered_bytes = states.trained;
  } else {
    cost.parameter_bytes = states.stored;
    (gathers_in_actions(layout) ? moves.gathered : cost.gathered_bytes) = states.parameters;
    moves.unsharded = cost.gathered_bytes;
    if (const int second = layout.data.secondary_shard; second > 0) {
      moves.second_copy = {largest_part(parameters.all, second) * element_bytes(scenario.training.precision)};
      cost.parameter_bytes += moves.second_copy;
    }
  }
  if (reduces_in_actions(layout)) {
    moves.reduced = {(parameters.trained - parameters.late) * g};
    moves.accumulated = {parameters.accumulated * g};
    cost.gradient_bytes = moves.accumulated + Bytes{parameters.late * g};
  }
  if (layout.data.sharding == Sharding::hsdp && layout.data.replicate > 1) {
    moves.replicated = {parameters.updated * g};
  }
}

}  // namespace

void set_states(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario) {
  const StateBytes states = state_bytes(parameters, scenario.training, scenario.software.gradients);
  cost.parameters = parameters.all;
  cost.parameter_bytes = states.parameters;
  cost.gradient_bytes = states.gradients;
  cost.optimizer_bytes = states.optimizer;
  cost.data_moves = {};
  cost.host_moves = {};
  cost.parameter_moves = {};
  if (state_shards(scenario.layout) > 1) share_out(cost, parameters, states, scenario);
  if (scenario.training.offload.optimizer) offload_optimizer(cost, parameters, scenario);
  if (scenario.training.offload.parameters) offload_parameters(cost, parameters, scenario);
}

KernelContext kernel_context(const Scenario& scenario, Slice slice) {
  return {.sequence = scenario.training.sequence,
          .microbatch = scenario.training.microbatch,
          .precision = scenario.training.precision,
          .software = scenario.software,
          .slice = slice,
          .framework_on_host = scenario.software.composed && scenario.cluster.machine.device.type == DeviceType::cpu,
          .asynchronous = scenario.layout.tensor.asynchronous};
}

ComputeCost analytic_cost(const BlockWork& work, const Scenario& scenario, Slice slice) {
  const auto& [shapes, program] = work;
  const Training& training = scenario.training;
  const Machine machine = machine_in_training(scenario);
  const KernelContext context = kernel_context(scenario, slice);
  const PhaseTimes times = phase_times(program, machine, tensor_groups(scenario.layout, scenario.cluster));
  const ProgramMemory memory = program_memory(program);
  const Working largest =
      largest_working(shapes.made.empty() ? program.kept : kept_values(shapes.made, context, shapes.placed));
  const double slices = static_cast<double>(training.sequence) / static_cast<double>(tokens_of(context));
  require_countable_block(
      std::max({memory.kept, memory.kept_for_weight, largest.forward, largest.input_gradient}) * slices, scenario);
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role == ParameterRole::lookup || parameter.frozen) continue;
    largest_parameter = std::max(largest_parameter, elements_of_rank(parameter, shapes.placed));
  }
  const Bytes boundary = bytes_of_tokens(boundary_of_rank(scenario), tokens_of(context), training.sequence);

  ComputeCost cost;
  const ParameterShare parameters = share_of_rank(work, scenario);
  set_states(cost, parameters, scenario);
  set_tensor_gradients(cost, program, scenario.layout.tensor);
  cost.forward = times.forward;
  cost.input_gradient = times.input_gradient;
  cost.weight_gradient = times.weight_gradient + table_gradient_time(shapes, scenario, machine.device);
  cost.hidden_in_backward = times.hidden;
  cost.kept_bytes = whole(memory.kept);
  cost.kept_for_weight_bytes = whole(memory.kept_for_weight);
  const Bytes moved = moved_whole(shapes, training, boundary);
  cost.forward_workspace_bytes = boundary + moved + whole(largest.forward);
  const std::int64_t gradients = adds_up_before_move(shapes, scenario.software) ? 4 : 2;
  cost.input_gradient_workspace_bytes = gradients * (boundary + moved) + whole(largest.input_gradient);
  // A framework on a host makes a product of 16-bit values in their type, and adds it as a copy in fp32.
  const bool narrow = context.framework_on_host && training.precision != ElementType::fp32;
  const std::int64_t of_element = fp32_bytes + (narrow ? element_bytes(training.precision) : 0);
  cost.weight_gradient_workspace_bytes = Bytes{of_element * largest_parameter} + gathered_for_weight(shapes, training);
  if (is_grid(scenario.layout.tensor) && scenario.layout.tensor.degree > 1) {
    hold_gathered(cost, work, training, boundary, of_element);
  }
  redo_inside_backward(cost, scenario, times.redone, whole(memory.redone));
  cost.optimizer = optimizer_time(parameters, scenario, machine.device);
  return cost;
}

}  // namespace plumb
