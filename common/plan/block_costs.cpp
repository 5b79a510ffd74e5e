#include "common/plan/block_costs.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/error.hpp"
#include "common/model/lora.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/block_shapes.hpp"
#include "common/plan/boundary.hpp"

namespace plumb {
namespace {

constexpr std::int64_t fp32_bytes = element_bytes(ElementType::fp32);

// Experts that are chosen `load` times as often as the mean see so many more tokens.
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

// Of one rank of a tensor group.
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

// Weights in fp32 are read and written; beside 16-bit weights stands an fp32 master copy among the optimizer's states,
// and the weights are only written. Gradients are read and cleared, states read and written.
Bytes optimizer_traffic(const StateBytes& states, const Training& training) {
  const std::int64_t weight_passes = training.precision == ElementType::fp32 ? 2 : 1;
  return weight_passes * states.trained + std::int64_t{2} * states.gradients + std::int64_t{2} * states.optimizer;
}

void set_states(ComputeCost& cost, ParameterShare parameters, const Training& training, ElementType gradients) {
  const StateBytes states = state_bytes(parameters, training, gradients);
  cost.parameters = parameters.all;
  cost.parameter_bytes = states.parameters;
  cost.gradient_bytes = states.gradients;
  cost.optimizer_bytes = states.optimizer;
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(std::llround(bytes))}; }

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

KernelContext kernel_context(const Scenario& scenario) {
  const TensorLayout& tensor = scenario.layout.tensor;
  return {.sequence = scenario.training.sequence,
          .microbatch = scenario.training.microbatch,
          .precision = scenario.training.precision,
          .tensor = tensor.degree,
          .sequence_parallel = tensor.sequence_parallel && tensor.degree > 1,
          .software = scenario.software};
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

ComputeCost analytic_cost(const BlockShapes& shapes, const Scenario& scenario) {
  const Training& training = scenario.training;
  const Machine machine = machine_in_training(scenario);
  const int tensor = scenario.layout.tensor.degree;
  const KernelContext context = kernel_context(scenario);
  const GroupPlacement group = placement(scenario.layout, MeshAxis::tensor, scenario.cluster);
  const PhaseTimes times = phase_times(block_kernels(shapes.operations, context), machine, group);

  const Shares shares{.inside = 1.0 / tensor, .outside = context.sequence_parallel ? 1.0 / tensor : 1.0};
  const double tokens = static_cast<double>(training.microbatch) * static_cast<double>(training.sequence);
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
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role != ParameterRole::lookup && !parameter.frozen)
      largest_parameter = std::max(largest_parameter, elements(parameter));
  }
  const Bytes boundary = boundary_of_rank(scenario);

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

std::string describe(const ProfileShapes& shapes) {
  return shapes.model + " (" + shapes.model_digest + "), sequence " + std::to_string(shapes.sequence) +
         ", microbatch " + std::to_string(shapes.microbatch) + ", " + std::string(name_of(shapes.precision)) + ", " +
         optimizer_names().at(static_cast<std::size_t>(shapes.optimizer)) +
         (shapes.lora ? ", lora of " + describe(*shapes.lora) : "");
}

void require_same_shapes(const Profile& profile, const ProfileShapes& wanted) {
  ProfileShapes measured = profile.shapes;
  measured.model = wanted.model;  // a name is no shape
  if (measured == wanted) return;
  throw InputError("profile", "was measured for " + describe(profile.shapes) + "; this needs " + describe(wanted),
                   "calibrate with this scenario, or leave the profile out");
}

ComputeCost measured_cost(const Profile& profile, const std::string& key) {
  const auto found = std::find_if(profile.blocks.begin(), profile.blocks.end(),
                                  [&](const MeasuredBlock& block) { return block.block == key; });
  if (found == profile.blocks.end()) throw InputError("profile", "has no block '" + key + "'", "calibrate again");
  return found->cost;
}

}  // namespace

bool redoes_every_layer_inside(const Training& training, const Software& software) {
  return training.recompute.mode == RecomputeMode::full && software.recompute_unit == RecomputeUnit::layer;
}

Bytes boundary_of_rank(const Scenario& scenario) {
  const Bytes boundary = bytes(boundary_manifest(scenario.model, scenario.training));
  return kernel_context(scenario).sequence_parallel ? boundary / scenario.layout.tensor.degree : boundary;
}

namespace {

// Ranks of a stage's group on a machine, of those that it stands on the least.
int fewest_of_stage(const Layout& layout, MeshAxis axis, int devices, int stage) {
  std::map<int, int> members;  // by machine
  for (const int rank : group(layout, first_rank(layout, stage), axis)) ++members[machine_of(rank, devices)];
  int fewest = degree(as_all(layout, stage), axis);
  for (const auto& [machine, count] : members) fewest = std::min(fewest, count);
  return fewest;
}

}  // namespace

GroupPlacement placement(const Layout& layout, MeshAxis axis, const Cluster& cluster, Together together, int stage) {
  const int devices = cluster.machine.devices;
  const GroupWays ways = group_ways(layout, axis, cluster, together, stage);
  GroupPlacement placed{.ranks = degree(as_all(layout, stage), axis),
                        .per_machine = has_stage_data(layout) ? fewest_of_stage(layout, axis, devices, stage)
                                                              : fewest_on_a_machine(layout, axis, devices),
                        .ranks_per_nic = ways.ranks_per_nic,
                        .uplink_passes = ways.uplink_passes};
  const auto limit = [&](BytesPerSecond bandwidth, double passes) {
    if (passes <= 0) return;
    const BytesPerSecond each = bandwidth / passes;
    placed.border = placed.border.value > 0 ? std::min(placed.border, each) : each;
  };
  limit(leaf_bandwidth(cluster), ways.leaf_passes);
  limit(cluster.between_sites.bandwidth.value, ways.site_passes);
  if (ways.site_passes > 0) placed.step_latency = cluster.between_sites.latency.value;
  return placed;
}

Machine machine_in_training(const Scenario& scenario) {
  Machine machine = scenario.cluster.machine;
  const bool beside_messages =
      scenario.layout.pipeline > 1 && scenario.software.exchange == PipelineExchange::asynchronous;
  if (beside_messages && machine.device.multiprocessors > 0) {
    constexpr double least = 0.01;  // left to matmuls, whatever a fit or a draw tries
    machine.device.matmul_efficiency.value *=
        std::max(1 - machine.device.message_multiprocessors.value / machine.device.multiprocessors, least);
  }
  return machine;
}

std::vector<Kernel> kernels_of_block(const Scenario& scenario, std::size_t block) {
  const KernelContext context = kernel_context(scenario);
  return block_kernels(shapes_of_block(scenario, block, operation_context(context)).operations, context);
}

StateBytes state_bytes(ParameterShare parameters, const Training& training, ElementType gradients) {
  const bool master_copy = training.precision != ElementType::fp32;
  const std::int64_t moments = training.optimizer == Optimizer::adam ? 2 : 0;
  return {.parameters = {parameters.all * element_bytes(training.precision)},
          .gradients = {parameters.trained * element_bytes(gradients)},
          .optimizer = {parameters.trained * fp32_bytes * (moments + (master_copy ? 1 : 0))},
          .trained = {parameters.trained * element_bytes(training.precision)}};
}

std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch) {
  const Model& model = scenario.model;
  Scenario at = scenario;
  at.training.microbatch = microbatch;
  if (scenario.profile) {
    if (scenario.training.recompute.mode == RecomputeMode::selective) {
      throw InputError("training.recompute", "selective needs the time of attention alone, which a profile has not",
                       "none, full, {layers: …} or {every: …}, or leave the profile out");
    }
    require_same_shapes(*scenario.profile, {.model = model.name,
                                            .model_digest = model_digest(model),
                                            .sequence = scenario.training.sequence,
                                            .microbatch = microbatch,
                                            .precision = scenario.training.precision,
                                            .optimizer = scenario.training.optimizer,
                                            .lora = scenario.training.lora});
  }
  const OperationContext context = operation_context(kernel_context(at));
  const bool redoes_all = redoes_every_layer_inside(at.training, at.software);
  std::vector<ComputeCost> costs;
  const auto is_layer = [&](std::size_t block) { return block > 0 && block <= model.layers.size(); };
  const auto below = [&](std::size_t block) { return gradient_goes_below(model, scenario.training.lora, block); };
  std::vector<std::size_t> kinds;  // the first block of each kind of layer so far
  for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
    // Equal layers cost the same, wherever they stand.
    if (!scenario.profile && is_layer(block)) {
      const auto same = std::ranges::find_if(kinds, [&](std::size_t other) {
        return model.layers[other - 1] == model.layers[block - 1] && below(other) == below(block);
      });
      if (same != kinds.end()) {
        costs.push_back(costs[*same]);
        continue;
      }
      kinds.push_back(block);
    }
    BlockShapes shapes = shapes_of_block(at, block, context);
    if (scenario.expert_load != 1) load_experts(shapes.operations, scenario.expert_load);
    if (scenario.profile) {
      ComputeCost cost = measured_cost(*scenario.profile, block_key(model, static_cast<int>(block)));
      // A tied head may have been measured together with its copy of the table.
      const ParameterShare own = count_of_rank(shapes, 1);
      if (cost.parameters > own.all && !scenario.training.lora) {
        cost.optimizer = cost.optimizer * (static_cast<double>(own.all) / static_cast<double>(cost.parameters));
      }
      set_states(cost, own, scenario.training, scenario.software.gradients);
      costs.push_back(cost);
    } else {
      costs.push_back(analytic_cost(shapes, at));
    }
    const bool goes_back = costs.back().input_gradient.value > 0 || costs.back().weight_gradient.value > 0;
    if (is_layer(block) && redoes_all && goes_back)
      costs.back() = redone_in_backward(costs.back(), boundary_of_rank(at));
  }
  return costs;
}

ComputeCost with_table_copy(ComputeCost head, const Scenario& scenario, const ComputeCost& embedding) {
  const Model& model = scenario.model;
  const std::int64_t table = model.vocabulary * model.hidden / scenario.layout.tensor.degree;
  if (scenario.training.lora) {  // frozen
    head.parameters += table;
    head.parameter_bytes += Bytes{table * element_bytes(scenario.training.precision)};
    return head;
  }
  const double share =
      static_cast<double>(table) / static_cast<double>(std::max<std::int64_t>(1, embedding.parameters));
  set_states(head, all_trained(head.parameters + table), scenario.training, scenario.software.gradients);
  head.optimizer += embedding.optimizer * share;
  return head;
}

ComputeCost with_table_gradient(ComputeCost head, const Scenario& scenario) {
  if (scenario.training.lora) return head;
  head.gradient_bytes += Bytes{scenario.model.vocabulary * scenario.model.hidden / scenario.layout.tensor.degree *
                               element_bytes(scenario.software.gradients)};
  return head;
}

std::string provenance(const Scenario& scenario) {
  if (scenario.profile) {
    const Profile& profile = *scenario.profile;
    return "profile of " + profile.machine + ", " + std::to_string(profile.samples) + " rounds of " +
           (profile.busy_ranks == 1 ? "one rank" : std::to_string(profile.busy_ranks) + " ranks at once") + ", " +
           profile.transport + " transport";
  }
  const DeviceProfile& device = scenario.cluster.machine.device;
  return "peak (" + device.peak.source + ") × efficiency (" + device.matmul_efficiency.source + ")";
}

}  // namespace plumb
