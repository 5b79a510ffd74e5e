#include "common/plan/block_costs.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/boundary.hpp"

namespace plumb {
namespace {

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

std::int64_t count(const std::vector<Parameter>& parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += elements(parameter);
  return sum;
}

// Weights in fp32 are read and written; beside bf16 weights stands an fp32 master copy among the optimizer's states,
// and the weights are only written. Gradients are read and cleared, states read and written.
Bytes optimizer_traffic(const StateBytes& states, const Training& training) {
  const std::int64_t weight_passes = training.precision == ElementType::fp32 ? 2 : 1;
  return weight_passes * states.parameters + std::int64_t{2} * states.gradients + std::int64_t{2} * states.optimizer;
}

void set_states(ComputeCost& cost, std::int64_t parameters, const Training& training) {
  const StateBytes states = state_bytes(parameters, training);
  cost.parameters = parameters;
  cost.parameter_bytes = states.parameters;
  cost.gradient_bytes = states.gradients;
  cost.optimizer_bytes = states.optimizer;
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(std::llround(bytes))}; }

ComputeCost analytic_cost(const BlockShapes& shapes, const Scenario& scenario, std::int64_t microbatch) {
  const Training& training = scenario.training;
  const DeviceProfile& device = scenario.cluster.machine.device;
  const FlopsPerSecond speed = device.peak.value * device.matmul_efficiency.value;
  const BytesPerSecond bandwidth = device.memory_bandwidth.value * device.memory_efficiency.value;
  const double tokens = static_cast<double>(microbatch) * static_cast<double>(training.sequence);

  const OperationTotals sums = totals(shapes.operations);
  const Bytes kept = whole(tokens * sums.kept_bytes);
  const Bytes kept_for_weight = whole(tokens * sums.kept_for_weight_bytes);
  double largest_kept = 0;
  for (const Operation& operation : shapes.operations) largest_kept = std::max(largest_kept, operation.kept_bytes);
  std::int64_t largest_parameter = 0;
  for (const Parameter& parameter : shapes.parameters) {
    if (parameter.role != ParameterRole::lookup) largest_parameter = std::max(largest_parameter, elements(parameter));
  }
  const Bytes boundary = bytes(boundary_manifest(scenario.model, training));

  ComputeCost cost;
  set_states(cost, count(shapes.parameters), training);
  cost.forward = sums.forward * tokens / speed + kept / bandwidth;
  cost.input_gradient = sums.input_gradient * tokens / speed + kept / bandwidth;
  cost.weight_gradient =
      sums.weight_gradient * tokens / speed + (kept_for_weight + std::int64_t{2} * cost.gradient_bytes) / bandwidth;
  cost.optimizer = optimizer_traffic(state_bytes(cost.parameters, training), training) / bandwidth;
  cost.kept_bytes = kept;
  cost.kept_for_weight_bytes = kept_for_weight;
  cost.forward_workspace_bytes = boundary + whole(tokens * largest_kept);
  cost.input_gradient_workspace_bytes = std::int64_t{2} * boundary + whole(tokens * largest_kept);
  cost.weight_gradient_workspace_bytes = {fp32_bytes * largest_parameter};
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

StateBytes state_bytes(std::int64_t parameters, const Training& training) {
  const bool master_copy = training.precision != ElementType::fp32;
  const std::int64_t moments = training.optimizer == Optimizer::adam ? 2 : 0;
  return {.parameters = {parameters * element_bytes(training.precision)},
          .gradients = {parameters * fp32_bytes},
          .optimizer = {parameters * fp32_bytes * (moments + (master_copy ? 1 : 0))}};
}

std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch) {
  const Model& model = scenario.model;
  Scenario at = scenario;
  at.training.microbatch = microbatch;
  if (scenario.profile) {
    require_same_shapes(*scenario.profile, {.model = model.name,
                                            .model_digest = model_digest(model),
                                            .sequence = scenario.training.sequence,
                                            .microbatch = microbatch,
                                            .precision = scenario.training.precision,
                                            .optimizer = scenario.training.optimizer});
  }
  const OperationContext context{.sequence = scenario.training.sequence, .activations = scenario.training.precision};
  std::vector<ComputeCost> costs;
  for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
    const BlockShapes shapes = shapes_of_block(model, block, context);
    if (scenario.profile) {
      ComputeCost cost = measured_cost(*scenario.profile, block_key(model, static_cast<int>(block)));
      // A tied head may have been measured together with its copy of the table.
      const std::int64_t own = count(shapes.parameters);
      if (cost.parameters > own) {
        cost.optimizer = cost.optimizer * (static_cast<double>(own) / static_cast<double>(cost.parameters));
      }
      set_states(cost, own, scenario.training);
      costs.push_back(cost);
    } else {
      costs.push_back(analytic_cost(shapes, at, microbatch));
    }
  }
  return costs;
}

ComputeCost with_table_copy(ComputeCost head, const Model& model, const Training& training,
                            const ComputeCost& embedding) {
  const std::int64_t table = model.vocabulary * model.hidden;
  const double share =
      static_cast<double>(table) / static_cast<double>(std::max<std::int64_t>(1, embedding.parameters));
  set_states(head, head.parameters + table, training);
  head.optimizer += embedding.optimizer * share;
  return head;
}

ComputeCost with_table_gradient(ComputeCost head, const Model& model) {
  head.gradient_bytes += Bytes{model.vocabulary * model.hidden * fp32_bytes};
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
