#include "common/scenario_file/stage_data_choices.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/cost/collective_time.hpp"
#include "common/cost/stage_workspace.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/layout_features.hpp"
#include "common/layout/message_shares.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/scenario/boundary.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario/vocabulary_fit.hpp"

namespace plumb {
namespace {

// How many stages the planner looks at: its time grows with them.
constexpr int most_planned_stages = 16;

constexpr int fewest_replicas = 3;  // that make two stages of different degrees

bool allows(const Scenario& scenario, int pipeline) {
  const std::vector<int>& lengths = *scenario.stage_data_pipelines;
  return pipeline > 1 && (lengths.empty() || std::ranges::find(lengths, pipeline) != lengths.end());
}

// With LoRA the table is frozen: each of the two stages has a copy, and there is no gradient to add up.
bool shares_trained_table(const Scenario& scenario) {
  return scenario.model.tied_embeddings && !scenario.training.lora;
}

bool has_some_microbatch(const Scenario& scenario, const Layout& layout) {
  return std::ranges::any_of(scenario.microbatches, [&](std::int64_t size) {
    return !uneven_shares(layout, size) && microbatches_of(scenario, size, layout.data.degree) > 0;
  });
}

// All ways to write `replicas` as a sum of at most so many, in lexicographic order; none where there are too many.
std::vector<std::vector<int>> all_vectors(int replicas, int most_stages) {
  if (replicas > 30 || (std::size_t{1} << (replicas - 1)) > most_stage_data_vectors) return {};
  std::vector<std::vector<int>> vectors;
  std::vector<int> now;
  const auto extend = [&](const auto& self, int left) -> void {
    if (left == 0) vectors.push_back(now);
    if (std::ssize(now) == most_stages) return;
    for (int degree = 1; degree <= left; ++degree) {
      now.push_back(degree);
      self(self, left - degree);
      now.pop_back();
    }
  };
  extend(extend, replicas);
  return vectors;
}

// Each once, by what the planner thinks they take.
std::vector<std::vector<int>> vectors_of(std::vector<ReplicaSplit> found) {
  std::ranges::stable_sort(found, {}, &ReplicaSplit::time);
  std::vector<std::vector<int>> vectors;
  for (ReplicaSplit& split : found) {
    if (std::ranges::find(vectors, split.degrees) == vectors.end()) vectors.push_back(std::move(split.degrees));
  }
  return vectors;
}

// Over all microbatches and widest stages: with messages that share NICs, and as if each rank had all of its own.
std::array<std::vector<std::vector<int>>, 2> planned_vectors(const Scenario& scenario, const Layout& base,
                                                             int replicas) {
  std::vector<ReplicaSplit> sharing;
  std::vector<ReplicaSplit> alone;
  for (const std::int64_t microbatch : scenario.microbatches) {
    for (int widest = 1; widest <= replicas; ++widest) {
      if (microbatches_of(scenario, microbatch, widest) == 0) continue;
      ReplicaProblem problem = replica_problem(scenario, base, replicas, microbatch, widest);
      for (ReplicaSplit& split : dapple_replicas(problem)) sharing.push_back(std::move(split));
      problem.message = [whole = problem.message(1, 1)](int from, int to) { return whole / std::min(from, to); };
      for (ReplicaSplit& split : dapple_replicas(problem)) alone.push_back(std::move(split));
    }
  }
  return {vectors_of(std::move(sharing)), vectors_of(std::move(alone))};
}

// Problem of a base with a stage of each of these data degrees; nullopt if there is none.
std::optional<std::string> refused(const Scenario& scenario, const Layout& base, const std::vector<int>& degrees) {
  const Layout layout = layout_with(base, degrees);
  UsedFeatures used{.set = features_of_all(scenario) | features_of(layout)};
  if (scenario.offloads.size() < 2) used.set |= features_of(scenario.training.offload);
  used.set.reset(index_of(Feature::profile));  // why_no_stage_data says it first
  const std::vector<Refusal> found = refusals(used, Purpose::plan);
  if (!found.empty()) return found.front().problem;
  const auto misfit = vocabulary_misfit(scenario.model, layout);
  return misfit ? std::optional(misfit->problem()) : std::nullopt;
}

// What differs in more than the pipeline, the data degree and the order.
std::vector<Layout> tensor_layouts(const Scenario& scenario) {
  std::vector<Layout> different;
  for (const Layout& layout : layouts_of(scenario)) {
    Layout base = layout_with(layout, {1});
    if (!is_divisible(scenario.model, base) || refused(scenario, base, {1, 2})) continue;
    if (std::ranges::find(different, base) == different.end()) different.push_back(std::move(base));
  }
  return different;
}

}  // namespace

std::int64_t microbatches_of(const Scenario& scenario, std::int64_t microbatch, int widest) {
  const std::int64_t whole = microbatch * widest;
  return scenario.training.global_batch % whole == 0 ? scenario.training.global_batch / whole : 0;
}

int replicas_in_all(const Scenario& scenario, const Layout& base) {
  const int of_each = stage_width(base, 0);
  return scenario.cluster.ranks % of_each == 0 ? scenario.cluster.ranks / of_each : 0;
}

Layout layout_with(const Layout& base, const std::vector<int>& degrees) {
  Layout layout = base;
  layout.order = Layout{}.order;
  layout.pipeline = static_cast<int>(degrees.size());
  return with_stage_data(layout, degrees);
}

namespace {

// How long a message between stages of two degrees takes; `at` has the whole microbatch.
std::function<Seconds(int, int)> message_of(const Scenario& at, const Layout& base) {
  const Machine& machine = at.cluster.machine;
  const bool one_machine = at.cluster.ranks <= machine.devices;
  const Link& link = one_machine ? machine.inside : machine.outside;
  const TransferCost way{.latency = link.latency.value, .bandwidth = link.bandwidth.value};
  const Bytes states = bytes(boundary_manifest(at.model, at.training)) /
                       (sends_parts(at.software, base.tensor) ? base.tensor.degree : 1);
  // All ranks of a stage that share a NIC send at once.
  const int shared_by = one_machine ? 1 : devices_per_nic(machine);
  return [way, states, shared_by](int from, int to) {
    const auto through_port = [&](int degree) { return states * std::min(degree, shared_by) / degree; };
    return transfer_time(way, std::max(through_port(from), through_port(to)));
  };
}

}  // namespace

ReplicaProblem replica_problem(const Scenario& scenario, const Layout& base, int replicas, std::int64_t microbatch,
                               int widest) {
  const Machine& machine = scenario.cluster.machine;
  const std::int64_t whole = microbatch * widest;
  const Recompute recompute = recomputes_of(scenario).front();
  Scenario at = scenario;
  at.training.recompute = recompute;
  at.layout = layout_with(base, std::vector<int>(std::min<std::size_t>(2, scenario.model.layers.size()), 1));
  const bool redone = recompute.mode == RecomputeMode::full && scenario.software.recompute_unit == RecomputeUnit::stage;
  ReplicaProblem problem{
      .devices = replicas,
      .most_stages = std::min({replicas, static_cast<int>(scenario.model.layers.size()), most_planned_stages}),
      .microbatches = microbatches_of(scenario, microbatch, widest),
      .degrees = {},
      .widest = widest,
      .forward = {},
      .backward = {},
      .memory = machine.device.memory.value};
  // By degree; the schedule is not settled yet.
  std::map<int, std::pair<StageWorkspaces, StageWorkspaces>> workspaces;
  for (int degree = 1; degree <= widest; ++degree) {
    if (whole % degree != 0) continue;
    at.layout = layout_with(base, std::vector<int>(static_cast<std::size_t>(at.layout.pipeline), degree));
    const std::vector<ComputeCost> blocks = block_costs(at, whole / degree);
    workspaces.emplace(degree,
                       std::pair(StageWorkspaces(blocks, BackwardIn::one), StageWorkspaces(blocks, BackwardIn::two)));
    problem.degrees.push_back(degree);
    problem.forward.emplace_back();
    problem.backward.emplace_back();
    problem.kept.emplace_back();
    for (const ComputeCost& block : blocks) {
      problem.forward.back().push_back(block.forward);
      problem.backward.back().push_back(backward_time(block) + (redone ? block.forward : Seconds{}));
      problem.kept.back().push_back(redone ? Bytes{} : block.kept_bytes);
      if (degree > 1) continue;
      problem.fixed.push_back(block.parameter_bytes + block.gradient_bytes + block.optimizer_bytes);
      problem.gradients.push_back(block.gradient_bytes);
    }
  }
  at.training.microbatch = whole;
  problem.message = message_of(at, base);
  problem.working = [workspaces = std::move(workspaces), redone](int degree, int first, int last) {
    const auto needed = [&](const StageWorkspaces& own) {
      return redone ? own.with_kept(first, last) : own.of(first, last);
    };
    const auto& [in_one, in_two] = workspaces.at(degree);
    return std::min(needed(in_one), needed(in_two));
  };
  std::map<int, GroupPlacement> groups;  // by degree
  for (const int degree : problem.degrees) {
    groups.emplace(degree, placement(layout_with(base, {degree}), MeshAxis::data, scenario.cluster));
  }
  problem.reduction = [&scenario, groups](int degree, Bytes gradients) -> Seconds {
    if (degree == 1 || scenario.software.data_overlap) return {};
    return collective_time(scenario.cluster.machine, Collective::all_reduce, static_cast<double>(gradients.value),
                           groups.at(degree));
  };
  return problem;
}

std::optional<std::string> why_no_divided_stage_data(const Scenario& scenario) {
  if (!scenario.stage_data_pipelines) return std::nullopt;
  std::vector<int> lengths = *scenario.stage_data_pipelines;
  if (lengths.empty()) {  // any that the layers make
    lengths.resize(scenario.model.layers.size());
    std::iota(lengths.begin(), lengths.end(), 1);
  }
  for (const Layout& layout : layouts_of(scenario)) {
    for (const int stages : lengths) {
      if (stages < 2) continue;
      std::vector<int> degrees(static_cast<std::size_t>(stages), 1);
      if (refused(scenario, layout, degrees)) continue;  // whatever its data degrees are
      degrees.back() = 2;
      if (auto refusal = refused(scenario, layout, degrees)) return refusal;
    }
  }
  return std::nullopt;
}

static std::optional<Refusal> refused_whatever_degrees(const Scenario& scenario) {
  UsedFeatures used{.set = FeatureSet().set(index_of(Feature::data_by_stage))};
  used.set.set(index_of(Feature::profile), scenario.profile.has_value());
  used.set.set(index_of(Feature::tied_over_ranks), shares_trained_table(scenario));
  const std::vector<Refusal> found = refusals(used, Purpose::plan);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

std::string why_no_stage_data(const Scenario& scenario) {
  if (const auto refusal = refused_whatever_degrees(scenario)) return refusal->problem + ": " + refusal->hint;
  const std::vector<Layout> bases = tensor_layouts(scenario);
  if (bases.empty()) {
    if (const auto divided = why_no_divided_stage_data(scenario)) return *divided;
  }
  const bool enough = std::ranges::any_of(
      bases, [&](const Layout& base) { return replicas_in_all(scenario, base) >= fewest_replicas; });
  if (!enough) {
    return "two stages of different degrees need at least three ranks for each rank of a tensor group: more ranks, or "
           "a smaller tensor degree";
  }
  const std::vector<int>& lengths = scenario.stage_data_pipelines.value();
  if (!lengths.empty() && std::ranges::none_of(lengths, [](int length) { return length > 1; })) {
    return "a pipeline of one rank has one degree: pipeline: auto";
  }
  if (scenario.model.layers.size() < 2) return "a model of one layer has one stage";
  std::string sizes;
  for (const std::int64_t size : scenario.microbatches) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return "no microbatch of " + sizes + " divides among unequal degrees and the batch of " +
         std::to_string(scenario.training.global_batch) +
         " on so many ranks: a larger microbatch, or more to choose from";
}

std::vector<Layout> stage_data_layouts(const Scenario& scenario) {
  std::vector<Layout> layouts;
  if (!scenario.stage_data_pipelines || refused_whatever_degrees(scenario)) return layouts;
  const int layers = static_cast<int>(scenario.model.layers.size());
  for (const Layout& base : tensor_layouts(scenario)) {
    const int replicas = replicas_in_all(scenario, base);
    if (replicas < fewest_replicas) continue;
    const auto add = [&](const std::vector<std::vector<int>>& vectors, std::size_t most) {
      for (const std::vector<int>& degrees : vectors) {
        if (most == 0) return;
        const Layout layout = layout_with(base, degrees);
        const bool differ = has_stage_data(layout) && allows(scenario, layout.pipeline);
        if (!differ || !has_some_microbatch(scenario, layout)) continue;
        --most;
        if (std::ranges::find(layouts, layout) == layouts.end()) layouts.push_back(layout);
      }
    };
    const std::vector<std::vector<int>> all = all_vectors(replicas, std::min(replicas, layers));
    add(all, all.size());
    if (!all.empty()) continue;
    for (const auto& vectors : planned_vectors(scenario, base, replicas)) add(vectors, most_stage_data_layouts);
  }
  return layouts;
}

}  // namespace plumb
