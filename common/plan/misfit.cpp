#include "common/plan/misfit.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/text.hpp"

namespace plumb {
namespace {

constexpr std::size_t most_proposals = 3;

struct Proposal {
  std::string text;
  Scenario scenario;
};

std::int64_t smallest_divisor_above_one(std::int64_t number) {
  for (std::int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return divisor;
  }
  return number;
}

Proposal with_ranks(Scenario scenario, int pipeline) {
  scenario.layout.pipeline = pipeline;
  scenario.layouts = {scenario.layout};
  scenario.cluster.ranks = ranks(scenario.layout);
  Machine& machine = scenario.cluster.machine;
  const std::string text = "layout: {pipeline: " + std::to_string(pipeline) + "}";
  if (machine.device.type == DeviceType::cpu) {
    machine.devices = std::max(machine.devices, scenario.cluster.ranks);
    return {text + " with cluster: {ranks: " + std::to_string(scenario.cluster.ranks) + "}", std::move(scenario)};
  }
  const int nodes = (scenario.cluster.ranks + machine.devices - 1) / machine.devices;
  if (nodes <= scenario.cluster.nodes) return {text, std::move(scenario)};
  scenario.cluster.nodes = nodes;
  return {text + " with cluster: {nodes: " + std::to_string(nodes) + "}", std::move(scenario)};
}

// Changes of one line each, the cheapest in time first, each starting from the scenario as it is.
std::vector<Proposal> proposals(const Scenario& scenario) {
  std::vector<Proposal> list;
  for (const SplitMethod method : {SplitMethod::dynamic, SplitMethod::uniform}) {
    const SplitChoice split{.method = method};
    if (std::find(scenario.splits.begin(), scenario.splits.end(), split) != scenario.splits.end()) continue;
    list.push_back({"split: " + std::string(name_of(method)), scenario});
    list.back().scenario.splits = {split};
  }
  std::int64_t microbatch = *std::min_element(scenario.microbatches.begin(), scenario.microbatches.end());
  while (microbatch > 1 && !scenario.profile) {
    microbatch /= smallest_divisor_above_one(microbatch);
    list.push_back({"microbatch: " + std::to_string(microbatch), scenario});
    list.back().scenario.microbatches = {microbatch};
  }
  const ScheduleChoice one_f_one_b{.name = "1f1b", .chunks = 1};
  if (std::find(scenario.schedules.begin(), scenario.schedules.end(), one_f_one_b) == scenario.schedules.end()) {
    list.push_back({"schedule: 1f1b", scenario});
    list.back().scenario.schedules = {one_f_one_b};
  }
  if (scenario.training.recompute.mode == RecomputeMode::none) {
    list.push_back({"recompute: full", scenario});
    list.back().scenario.training.recompute.mode = RecomputeMode::full;
    list.back().scenario.recomputes = {list.back().scenario.training.recompute};
  }
  const int layers = static_cast<int>(scenario.model.layers.size());
  for (int pipeline = scenario.layout.pipeline * 2; pipeline <= layers; pipeline *= 2) {
    list.push_back(with_ranks(scenario, pipeline));
  }
  return list;
}

bool fits(const Scenario& scenario) {
  const PlanningResult result = plan_scenario(scenario, predict_by_path);
  return std::any_of(result.candidates.begin(), result.candidates.end(),
                     [](const Candidate& candidate) { return candidate.own && candidate.fits; });
}

std::string what_would_fit(const Scenario& scenario) {
  std::string text;
  std::size_t found = 0;
  bool smaller_microbatch = false;
  bool more_ranks = false;
  for (const Proposal& proposal : proposals(scenario)) {
    // The largest microbatch and the fewest ranks that fit are enough.
    const bool is_microbatch = proposal.scenario.microbatches != scenario.microbatches;
    const bool is_ranks = proposal.scenario.layout.pipeline != scenario.layout.pipeline;
    if ((is_microbatch && smaller_microbatch) || (is_ranks && more_ranks) || found == most_proposals) continue;
    if (!fits(proposal.scenario)) continue;
    text += (found++ == 0 ? "this would fit: " : "; or ") + proposal.text;
    smaller_microbatch |= is_microbatch;
    more_ranks |= is_ranks;
  }
  if (!text.empty()) return text;
  return "no single change fits (other splits, smaller microbatch, 1f1b, full recompute, more pipeline ranks were "
         "tried)";
}

}  // namespace

std::string describe_misfit(const Candidate& candidate) {
  const auto [rank, summary] = fullest_rank(candidate.ranks);
  const Bytes memory = candidate.plan.cluster.machine.device.memory.value;
  const std::array<std::pair<Bytes, const char*>, 4> owners = {{{summary.parameter_bytes, "parameters"},
                                                                {summary.gradient_bytes, "gradients"},
                                                                {summary.optimizer_bytes, "optimizer states"},
                                                                {summary.activation_bytes, "activations"}}};
  const auto most =
      std::max_element(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return "rank " + std::to_string(rank) + " needs " + to_text(summary.peak_bytes) + " of " + to_text(memory) + ", " +
         to_text(summary.peak_bytes - memory) + " too much; most of it " + most->second + " (" + to_text(most->first) +
         ")";
}

void throw_nothing_fits(const PlanningResult& result, const Scenario& scenario) {
  const auto first = std::find_if(result.candidates.begin(), result.candidates.end(),
                                  [](const Candidate& candidate) { return candidate.own; });
  if (first == result.candidates.end() || !first->built) {
    throw InputError(scenario.place, "no candidate can be built: " +
                                         (first == result.candidates.end() ? "there is none" : first->reason));
  }
  const bool open = layouts_of(scenario).size() * recomputes_of(scenario).size() > 1;
  throw InputError(
      scenario.place, "nothing fits in memory: " + first->reason,
      open ? "more devices, or more layouts and recompute modes to choose from" : what_would_fit(scenario));
}

}  // namespace plumb
