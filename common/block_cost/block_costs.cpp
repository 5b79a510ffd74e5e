#include "common/block_cost/block_costs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/analytic_cost.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/block_cost/handed_on.hpp"
#include "common/cost/profile/profile_noise.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/model/first_equal.hpp"
#include "common/model/lora.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"
#include "common/scenario/boundary.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

std::string describe(const ProfileShapes& shapes) {
  return shapes.model + " (" + shapes.model_digest + "), sequence " + std::to_string(shapes.sequence) +
         ", microbatch " + std::to_string(shapes.microbatch) + ", " + std::string(name_of(shapes.precision)) + ", " +
         optimizer_names().at(static_cast<std::size_t>(shapes.optimizer)) +
         (shapes.lora ? ", lora of " + describe(*shapes.lora) : "");
}

std::string layers_text(const ProfileShapes& shapes) {
  if (shapes.tensor_degree == 1) return ", whole layers";
  return ", layers of a tensor degree of " + std::to_string(shapes.tensor_degree) +
         (shapes.sequence_parallel ? " with sequence parallelism" : " without sequence parallelism");
}

// `file`: of the profile, if it has one; a candidate's reason is told without its place.
void require_same_shapes(const Profile& profile, const std::string& file, const ProfileShapes& wanted) {
  ProfileShapes measured = profile.shapes;
  measured.model = wanted.model;  // a name is no shape
  if (measured == wanted) return;
  const bool one_layout =
      measured.tensor_degree == wanted.tensor_degree && measured.sequence_parallel == wanted.sequence_parallel;
  const auto text = [&](const ProfileShapes& of) { return describe(of) + (one_layout ? "" : layers_text(of)); };
  throw InputError(file.empty() ? "profile" : "",
                   (file.empty() ? "" : "the profile " + file + " ") + "was measured for " + text(profile.shapes) +
                       "; this needs " + text(wanted),
                   "calibrate with this scenario, or leave the profile out");
}

void require_measured_kind(const TensorLayout& tensor) {
  if (tensor.asynchronous) {
    throw InputError("profile", "was measured of whole products; an asynchronous tensor layout makes them in pieces",
                     "tensor: {asynchronous: false}, or leave the profile out");
  }
  if (tensor.degree == 1 || tensor.kind == TensorKind::one_d) return;
  throw InputError("profile", "was measured for a 1d tensor layout; this needs another kind",
                   "tensor: {kind: 1d}, or leave the profile out");
}

}  // namespace

bool redoes_every_layer_inside(const Training& training, const Software& software) {
  return training.recompute.mode == RecomputeMode::full && software.recompute_unit == RecomputeUnit::layer;
}

Bytes boundary_of_rank(const Scenario& scenario) {
  const Bytes boundary = bytes(boundary_manifest(scenario.model, scenario.training));
  return divides_hidden_states(scenario.layout.tensor) ? boundary / scenario.layout.tensor.degree : boundary;
}

namespace {

void slow_down(DeviceProfile& device, double factor) {
  device.peak.value = device.peak.value / factor;
  device.memory_bandwidth.value = device.memory_bandwidth.value / factor;
  device.kernel_gap.value = device.kernel_gap.value * factor;
  device.launch_time.value = device.launch_time.value * factor;
}

}  // namespace

Machine machine_in_training(const Scenario& scenario) {
  Machine machine = scenario.cluster.machine;
  if (const double slower = core_slowdown(scenario.layout, machine); slower > 1) slow_down(machine.device, slower);
  // What joins the parts of a vocabulary goes beside the layers, however these exchange their messages.
  const bool beside_messages =
      scenario.layout.pipeline > 1 &&
      (scenario.software.exchange == PipelineExchange::asynchronous || scenario.layout.vocabulary_barriers > 0);
  if (beside_messages && machine.device.multiprocessors > 0) {
    constexpr double least = 0.01;  // left to matmuls, whatever a fit or a draw tries
    machine.device.matmul_efficiency.value *=
        std::max(1 - machine.device.message_multiprocessors.value / machine.device.multiprocessors, least);
  }
  return machine;
}

BlockProgram program_of_block(const Scenario& scenario, std::size_t block, Slice slice) {
  return work_of_block(scenario, block, slice)->program;
}

StateBytes state_bytes(ParameterShare parameters, const Training& training, ElementType gradients) {
  const bool master_copy = training.precision != ElementType::fp32;
  const std::int64_t moments = moments_of(training.optimizer);
  return {.parameters = {parameters.all * element_bytes(training.precision)},
          .gradients = {parameters.trained * element_bytes(gradients)},
          .optimizer = {parameters.updated * element_bytes(ElementType::fp32) * (moments + (master_copy ? 1 : 0))},
          .trained = {parameters.trained * element_bytes(training.precision)},
          .updated = {parameters.updated * element_bytes(training.precision)},
          .stored = {parameters.stored * element_bytes(training.precision)}};
}

namespace {

// Of one slice, or of the whole microbatch.
ComputeCost analytic_cost_of(const Scenario& scenario, std::size_t block, Slice slice) {
  const std::shared_ptr<const BlockWork> work = work_of_block(scenario, block, slice);
  if (scenario.expert_load == 1) return analytic_cost(*work, scenario, slice);
  BlockWork loaded = *work;
  load_experts(loaded.shapes.operations, scenario.expert_load);
  loaded.program = block_program(loaded.shapes.operations, kernel_context(scenario, slice), loaded.shapes.placed);
  return analytic_cost(loaded, scenario, slice);
}

bool are_equal(const std::vector<Slice>& slices) {
  return std::ranges::all_of(slices, [&](const Slice& slice) { return slice.tokens == slices.front().tokens; });
}

ComputeCost analytic_cost_of_slices(const Scenario& scenario, std::size_t block, const std::vector<Slice>& slices) {
  std::vector<ComputeCost> all;
  for (const Slice& slice : slices) all.push_back(analytic_cost_of(scenario, block, slice));
  return of_slices(all);
}

constexpr std::array phases{&SlicePart::forward, &SlicePart::input_gradient, &SlicePart::weight_gradient};

SlicePart flops_of(const Scenario& scenario, std::size_t block, Slice slice) {
  SlicePart sum{.tokens = static_cast<double>(tokens_of(kernel_context(scenario, slice)))};
  for (const Operation& operation : work_of_block(scenario, block, slice)->shapes.operations) {
    sum.forward += operation.forward.value * sum.tokens;
    sum.input_gradient += operation.input_gradient.value * sum.tokens;
    sum.weight_gradient += operation.weight_gradient.value * sum.tokens;
  }
  return sum;
}

// What a slice has of the whole sequence's FLOPs of each phase; of a phase that has none, of its tokens.
SlicePart part_by_flops(SlicePart part, const SlicePart& whole) {
  part.tokens /= whole.tokens;
  for (const auto phase : phases) part.*phase = whole.*phase > 0 ? part.*phase / (whole.*phase) : part.tokens;
  return part;
}

// What is measured are computations: collectives take the time that the machine's numbers give, none of it hidden.
ComputeCost with_collectives(ComputeCost cost, const Scenario& scenario, std::size_t block, Slice slice) {
  if (scenario.layout.tensor.degree == 1) return cost;
  BlockProgram program = without_overlap(program_of_block(scenario, block, slice));
  set_tensor_gradients(cost, program, scenario.layout.tensor);
  std::erase_if(program.steps, [](const ProgramStep& step) { return step.kind != StepKind::move; });
  const TensorGroups groups = tensor_groups(scenario.layout, scenario.cluster);
  const PhaseTimes times = phase_times(program, machine_in_training(scenario), groups);
  cost.forward += times.forward;
  cost.input_gradient += times.input_gradient;
  cost.weight_gradient += times.weight_gradient;
  return cost;
}

// Cores that compute a CPU machine's ranks update as host, too; of other devices the host was not measured.
void update_as_measured(ComputeCost& cost, const Scenario& scenario) {
  if (!scenario.training.offload.optimizer) return;
  if (scenario.cluster.machine.device.type == DeviceType::cpu) cost.host_moves.updating = cost.optimizer;
  cost.optimizer = {};
}

ComputeCost measured_cost_of(const Scenario& scenario, std::size_t block, const std::vector<Slice>& slices) {
  ComputeCost cost = measured_block(*scenario.profile, block_key(scenario.model, static_cast<int>(block))).cost;
  // It was measured with no more ranks than cores.
  if (const double slower = core_slowdown(scenario.layout, scenario.cluster.machine); slower > 1) {
    for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient,
                            &ComputeCost::hidden_in_backward, &ComputeCost::optimizer}) {
      cost.*time = cost.*time * slower;
    }
  }
  // A tied head may have been measured together with its copy of the table.
  const ParameterShare own = share_of_rank(*work_of_block(scenario, block), scenario);
  if (cost.parameters > own.all && !scenario.training.lora) {
    cost.optimizer = cost.optimizer * (static_cast<double>(own.all) / static_cast<double>(cost.parameters));
  }
  if (own.trained > 0) {  // measured of all
    cost.optimizer = cost.optimizer * (static_cast<double>(own.updated) / static_cast<double>(own.trained));
  }
  set_states(cost, own, scenario);
  update_as_measured(cost, scenario);
  const auto count = static_cast<std::int64_t>(slices.size());
  const bool make_up_all = slices.front().tokens * count == scenario.training.sequence;
  if (are_equal(slices) && make_up_all) {
    return with_collectives(per_slice(cost, static_cast<int>(count)), scenario, block, slices.front());
  }
  const SlicePart whole = flops_of(scenario, block, {});
  std::vector<ComputeCost> all;
  for (const Slice& slice : slices) {
    const SlicePart part = part_by_flops(flops_of(scenario, block, slice), whole);
    all.push_back(with_collectives(part_of(cost, part), scenario, block, slice));
  }
  return of_slices(all);
}

// By slice: its input and what it hands on.
std::vector<Bytes> kept_if_redone(const Scenario& scenario, const std::vector<Slice>& slices,
                                  const std::vector<HandedOn>& handed) {
  const Bytes boundary = boundary_of_rank(scenario);
  std::vector<Bytes> all;
  for (std::size_t n = 0; n < slices.size(); ++n) {
    all.push_back(bytes_of_tokens(boundary, slices[n].tokens, scenario.training.sequence) +
                  (handed.empty() ? Bytes{} : handed[n].all));
  }
  return all;
}

// As if one rank held all blocks and all microbatches at once, with a message each way: whatever layout and schedule
// then make of the blocks fits 63 bits, also twice of two replicas. In floating point, where the sum may not fit.
void require_countable_batch(const std::vector<ComputeCost>& blocks, const Scenario& scenario, double slices) {
  constexpr double most = 2'305'843'009'213'693'952.0;
  const Training& training = scenario.training;
  const double each = static_cast<double>(training.global_batch) / static_cast<double>(training.microbatch) * slices;
  const double passes = std::clamp(each, 1.0, static_cast<double>(largest_schedule));
  const double messages = 2.0 / slices * static_cast<double>(boundary_of_rank(scenario).value);
  double bytes = 0;
  for (const ComputeCost& block : blocks) {
    bytes += passes * (messages + static_cast<double>(block.kept_bytes.value) +
                       static_cast<double>(block.kept_for_weight_bytes.value));
    for (const Bytes once : {block.parameter_bytes, block.gradient_bytes, block.optimizer_bytes,
                             block.forward_workspace_bytes, block.input_gradient_workspace_bytes}) {
      bytes += static_cast<double>(once.value);
    }
  }
  if (bytes <= most) return;
  throw InputError("training",
                   "activations of a batch of " + std::to_string(training.global_batch) + " × " +
                       std::to_string(training.sequence) + " tokens, with all states, are larger than 2 EiB",
                   "a shorter sequence or a smaller global batch");
}

}  // namespace

std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch,
                                     const std::vector<Slice>& slices) {
  if (slices.empty()) return block_costs(scenario, microbatch, {Slice{.tokens = scenario.training.sequence}});
  if (microbatch != scenario.training.microbatch) {
    Scenario at = scenario;
    at.training.microbatch = microbatch;
    return block_costs(at, microbatch, slices);
  }
  const Model& model = scenario.model;
  if (scenario.profile) {
    if (scenario.training.recompute.mode == RecomputeMode::selective) {
      throw InputError("training.recompute", "selective needs the time of attention alone, which a profile has not",
                       "none, full, {layers: …} or {every: …}, or leave the profile out");
    }
    require_same_shapes(*scenario.profile, scenario.profile_file,
                        {.model = model.name,
                         .model_digest = model_digest(model),
                         .sequence = scenario.training.sequence,
                         .microbatch = microbatch,
                         .precision = scenario.training.precision,
                         .optimizer = scenario.training.optimizer,
                         .lora = scenario.training.lora,
                         .tensor_degree = scenario.layout.tensor.degree,
                         .sequence_parallel = divides_tokens(scenario.layout.tensor)});
    require_measured_kind(scenario.layout.tensor);
  }
  const bool redoes_all = redoes_every_layer_inside(scenario.training, scenario.software);
  std::vector<ComputeCost> costs;
  const auto is_layer = [&](std::size_t block) { return block > 0 && block <= model.layers.size(); };
  const auto below = [&](std::size_t block) { return gradient_goes_below(model, scenario.training.lora, block); };
  // Equal layers cost the same, wherever they stand, unless each was measured.
  const std::vector<std::size_t> first = first_equal(model.layers, [&](std::size_t block, std::size_t earlier) {
    return !scenario.profile && below(earlier) == below(block);
  });
  costs.reserve(first.size());
  for (std::size_t block = 0; block < first.size(); ++block) {
    if (first[block] < block) {
      costs.push_back(costs[first[block]]);
      continue;
    }
    costs.push_back(scenario.profile ? measured_cost_of(scenario, block, slices)
                                     : analytic_cost_of_slices(scenario, block, slices));
    if (!is_layer(block)) continue;
    const std::vector<HandedOn> handed = handed_on(scenario, block, slices);
    costs.back().kept_if_redone = kept_if_redone(scenario, slices, handed);
    const bool goes_back = costs.back().input_gradient.value > 0 || costs.back().weight_gradient.value > 0;
    if (goes_back) costs.back() = handing_on(std::move(costs.back()), handed);
    if (redoes_all && goes_back) costs.back() = redone_in_backward(std::move(costs.back()));
  }
  require_countable_batch(costs, scenario, static_cast<double>(slices.size()));
  return costs;
}

ComputeCost with_table_copy(ComputeCost head, const Scenario& scenario, const ComputeCost& embedding) {
  const std::int64_t table = table_of_rank(scenario);
  const int shards = state_shards(scenario.layout);
  const bool frozen = scenario.training.lora.has_value();
  const std::int64_t part = largest_part(table, shards);
  ParameterShare whole{.all = table, .stored = part};
  if (!frozen) whole = {.all = table, .trained = table, .updated = part, .stored = part, .late = table};
  ComputeCost copy;
  set_states(copy, whole, scenario);
  head.parameters += copy.parameters;
  head.parameter_bytes += copy.parameter_bytes;
  head.gradient_bytes += copy.gradient_bytes;
  head.optimizer_bytes += copy.optimizer_bytes;
  head.gathered_bytes += copy.gathered_bytes;
  head.data_moves += copy.data_moves;
  head.parameter_moves += copy.parameter_moves;
  if (frozen) {
    head.host_moves += copy.host_moves;
    return head;
  }
  const double share =
      static_cast<double>(table) / static_cast<double>(std::max<std::int64_t>(1, embedding.parameters));
  copy.host_moves.updating = embedding.host_moves.updating * share;
  head.host_moves += copy.host_moves;
  head.optimizer += embedding.optimizer * share;
  return head;
}

ComputeCost with_table_gradient(ComputeCost head, const Scenario& scenario) {
  const std::int64_t table = table_of_rank(scenario);
  if (gathers_in_actions(scenario.layout)) {  // as the embedding does
    const std::int64_t weight = element_bytes(scenario.training.precision);
    head.data_moves.gathered += Bytes{table * weight};
    if (scenario.training.offload.parameters) {
      head.parameter_moves.up += Bytes{largest_part(table, state_shards(scenario.layout)) * weight};
    }
  }
  if (scenario.training.lora) return head;
  head.second_gradient_bytes = {table * element_bytes(scenario.software.gradients)};
  head.gradient_bytes += head.second_gradient_bytes;
  return head;
}

void settle_tied_head(std::vector<ComputeCost>& blocks, const Scenario& scenario, int stages) {
  if (!scenario.model.tied_embeddings || scenario.layout.vocabulary_barriers > 0) return;
  ComputeCost& head = blocks.back();
  head = stages > 1 ? with_table_copy(std::move(head), scenario, blocks.front())
                    : with_table_gradient(std::move(head), scenario);
}

std::string provenance(const Scenario& scenario) {
  if (scenario.profile) {
    const Profile& profile = *scenario.profile;
    return std::string(measured_provenance) + " " + profile.machine + ", " + std::to_string(profile.samples) +
           " rounds of " +
           (profile.busy_ranks == 1 ? "one rank" : std::to_string(profile.busy_ranks) + " ranks at once") + ", " +
           profile.transport + " transport" + noise_mark(profile);
  }
  const DeviceProfile& device = scenario.cluster.machine.device;
  return "peak (" + device.peak.source + ") × efficiency (" + device.matmul_efficiency.source + ")";
}

}  // namespace plumb
