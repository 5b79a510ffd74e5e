#include "common/plan/block_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/boundary.hpp"

namespace plumb {
namespace {

constexpr int all_layers = std::numeric_limits<int>::max();
constexpr std::int64_t fp32_bytes = element_bytes(ElementType::fp32);

// Where a block's shapes come from: its operations and its parameter tensors.
struct BlockShapes {
  std::vector<Operation> operations;
  std::vector<Parameter> parameters;
};

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

BlockShapes shapes_of_block(const Model& model, std::size_t block, const OperationContext& context) {
  if (block == 0) return {embedding_operations(model, context), embedding_parameters(model)};
  if (block <= model.layers.size()) {
    return {layer_operations(model, block - 1, context), layer_parameters(model, block - 1)};
  }
  BlockShapes head{head_operations(model, context), final_norm_parameters(model)};
  append(head.parameters, head_parameters(model));
  append(head.parameters, mtp_parameters(model));
  append(head.operations, mtp_operations(model, context));
  return head;
}

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

std::int64_t count(const std::vector<Parameter>& parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += elements(parameter);
  return sum;
}

// How a tensor group divides a parameter: as the operation of its name, whose weights or table it is. Biases of
// row-parallel matmuls are whole on every rank, as are norms and what no operation names.
TensorSplit split_of(const Parameter& parameter, const std::vector<Operation>& operations) {
  if (parameter.name == "embedding.weight" || parameter.name == "head.weight") return TensorSplit::outputs;
  const std::size_t dot = parameter.name.rfind('.');
  const std::string_view owner = std::string_view(parameter.name).substr(0, dot);
  const bool bias = std::string_view(parameter.name).substr(dot + 1) == "bias";
  for (const Operation& operation : operations) {
    const bool same = owner == operation.name || owner.ends_with("." + operation.name);
    if (!same) continue;
    return bias && operation.split == TensorSplit::inputs ? TensorSplit::none : operation.split;
  }
  return TensorSplit::none;
}

// Of one rank of a tensor group.
std::int64_t count_of_rank(const BlockShapes& shapes, int tensor) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : shapes.parameters) {
    const bool whole = tensor == 1 || split_of(parameter, shapes.operations) == TensorSplit::none;
    sum += whole ? elements(parameter) : (elements(parameter) + tensor - 1) / tensor;
  }
  return sum;
}

// Weights in fp32 are read and written; beside 16-bit weights stands an fp32 master copy among the optimizer's states,
// and the weights are only written. Gradients are read and cleared, states read and written.
Bytes optimizer_traffic(const StateBytes& states, const Training& training) {
  const std::int64_t weight_passes = training.precision == ElementType::fp32 ? 2 : 1;
  return weight_passes * states.parameters + std::int64_t{2} * states.gradients + std::int64_t{2} * states.optimizer;
}

void set_states(ComputeCost& cost, std::int64_t parameters, const Training& training, ElementType gradients) {
  const StateBytes states = state_bytes(parameters, training, gradients);
  cost.parameters = parameters;
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

// The gradient of a table is made dense: cleared, written, added to the main one.
Seconds table_gradient_time(const BlockShapes& shapes, const Scenario& scenario) {
  double rows = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.name == "embedding.weight") rows = static_cast<double>(elements(parameter));
  }
  const auto each = static_cast<double>(3 * element_bytes(scenario.software.gradients));
  return streaming_time(scenario.cluster.machine.device, each * rows / scenario.layout.tensor.degree);
}

Seconds optimizer_time(std::int64_t parameters, const Scenario& scenario) {
  const double given = scenario.software.optimizer_bytes * static_cast<double>(parameters);
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
    const double bytes = tokens * operation.kept_bytes * kept_share(operation, shares);
    kept += bytes;
    kept_for_weight += tokens * operation.kept_for_weight_bytes * kept_for_weight_share(operation, shares);
    largest_kept = std::max(largest_kept, bytes);
    if (makes_probabilities(operation)) kept_of_redone += bytes;
  }
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role != ParameterRole::lookup) largest_parameter = std::max(largest_parameter, elements(parameter));
  }
  const Bytes boundary = boundary_of_rank(scenario);

  ComputeCost cost;
  set_states(cost, count_of_rank(shapes, tensor), training, scenario.software.gradients);
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
  cost.optimizer = optimizer_time(cost.parameters, scenario);
  return cost;
}

std::string describe(const ProfileShapes& shapes) {
  return shapes.model + " (" + shapes.model_digest + "), sequence " + std::to_string(shapes.sequence) +
         ", microbatch " + std::to_string(shapes.microbatch) + ", " + std::string(name_of(shapes.precision)) + ", " +
         optimizer_names().at(static_cast<std::size_t>(shapes.optimizer));
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

int layers_redone_inside(const Training& training, const Software& software) {
  const Recompute& recompute = training.recompute;
  if (recompute.mode == RecomputeMode::first_layers) return recompute.layers;
  const bool all = recompute.mode == RecomputeMode::full && software.recompute_unit == RecomputeUnit::layer;
  return all ? all_layers : 0;
}

Bytes boundary_of_rank(const Scenario& scenario) {
  const Bytes boundary = bytes(boundary_manifest(scenario.model, scenario.training));
  return kernel_context(scenario).sequence_parallel ? boundary / scenario.layout.tensor.degree : boundary;
}

GroupPlacement placement(const Layout& layout, MeshAxis axis, const Cluster& cluster, Together together) {
  const GroupWays ways = group_ways(layout, axis, cluster, together);
  GroupPlacement placed{.ranks = degree(layout, axis),
                        .per_machine = fewest_on_a_machine(layout, axis, cluster.machine.devices),
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
  return block_kernels(shapes_of_block(scenario.model, block, operation_context(context)).operations, context);
}

StateBytes state_bytes(std::int64_t parameters, const Training& training, ElementType gradients) {
  const bool master_copy = training.precision != ElementType::fp32;
  const std::int64_t moments = training.optimizer == Optimizer::adam ? 2 : 0;
  return {.parameters = {parameters * element_bytes(training.precision)},
          .gradients = {parameters * element_bytes(gradients)},
          .optimizer = {parameters * fp32_bytes * (moments + (master_copy ? 1 : 0))}};
}

std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch) {
  const Model& model = scenario.model;
  Scenario at = scenario;
  at.training.microbatch = microbatch;
  if (scenario.profile) {
    if (scenario.training.recompute.mode == RecomputeMode::selective) {
      throw InputError("training.recompute", "selective needs the time of attention alone, which a profile has not",
                       "none, full or {layers: …}, or leave the profile out");
    }
    require_same_shapes(*scenario.profile, {.model = model.name,
                                            .model_digest = model_digest(model),
                                            .sequence = scenario.training.sequence,
                                            .microbatch = microbatch,
                                            .precision = scenario.training.precision,
                                            .optimizer = scenario.training.optimizer});
  }
  const OperationContext context = operation_context(kernel_context(at));
  const bool redoes_all = layers_redone_inside(at.training, at.software) == all_layers;
  std::vector<ComputeCost> costs;
  const auto is_layer = [&](std::size_t block) { return block > 0 && block <= model.layers.size(); };
  std::vector<std::size_t> kinds;  // the first block of each kind of layer so far
  for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
    // Equal layers cost the same, wherever they stand.
    if (!scenario.profile && is_layer(block)) {
      const auto same = std::ranges::find_if(
          kinds, [&](std::size_t other) { return model.layers[other - 1] == model.layers[block - 1]; });
      if (same != kinds.end()) {
        costs.push_back(costs[*same]);
        continue;
      }
      kinds.push_back(block);
    }
    BlockShapes shapes = shapes_of_block(model, block, context);
    if (scenario.expert_load != 1) load_experts(shapes.operations, scenario.expert_load);
    if (scenario.profile) {
      ComputeCost cost = measured_cost(*scenario.profile, block_key(model, static_cast<int>(block)));
      // A tied head may have been measured together with its copy of the table.
      const std::int64_t own = count(shapes.parameters);
      if (cost.parameters > own) {
        cost.optimizer = cost.optimizer * (static_cast<double>(own) / static_cast<double>(cost.parameters));
      }
      set_states(cost, own, scenario.training, scenario.software.gradients);
      costs.push_back(cost);
    } else {
      costs.push_back(analytic_cost(shapes, at));
    }
    if (is_layer(block) && redoes_all) costs.back() = redone_in_backward(costs.back(), boundary_of_rank(at));
  }
  return costs;
}

ComputeCost with_table_copy(ComputeCost head, const Scenario& scenario, const ComputeCost& embedding) {
  const Model& model = scenario.model;
  const std::int64_t table = model.vocabulary * model.hidden / scenario.layout.tensor.degree;
  const double share =
      static_cast<double>(table) / static_cast<double>(std::max<std::int64_t>(1, embedding.parameters));
  set_states(head, head.parameters + table, scenario.training, scenario.software.gradients);
  head.optimizer += embedding.optimizer * share;
  return head;
}

ComputeCost with_table_gradient(ComputeCost head, const Scenario& scenario) {
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
