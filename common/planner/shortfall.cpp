#include "common/planner/shortfall.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/sharding.hpp"
#include "common/schedule/action_words.hpp"

namespace plumb {
namespace {

constexpr std::size_t most_proposals = 5;
constexpr int most_tensor_factor = 64;

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

// As many ranks as the layout then needs, which `text` says.
Proposal with_layout(Scenario scenario, const Layout& layout, const std::string& text) {
  scenario.layout = layout;
  scenario.layouts = {layout};
  if (ranks(layout) == scenario.cluster.ranks) return {text, std::move(scenario)};
  scenario.cluster.ranks = ranks(layout);
  Machine& machine = scenario.cluster.machine;
  if (machine.device.type == DeviceType::cpu) {
    machine.devices = std::max(machine.devices, scenario.cluster.ranks);
    return {text + " with cluster: {ranks: " + std::to_string(scenario.cluster.ranks) + "}", std::move(scenario)};
  }
  const int nodes = (scenario.cluster.ranks + machine.devices - 1) / machine.devices;
  const std::string needed = "ranks: " + std::to_string(scenario.cluster.ranks) + "}";
  if (nodes <= scenario.cluster.nodes) return {text + " with cluster: {" + needed, std::move(scenario)};
  scenario.cluster.nodes = nodes;
  return {text + " with cluster: {nodes: " + std::to_string(nodes) + ", " + needed, std::move(scenario)};
}

Proposal with_pipeline(const Scenario& scenario, int pipeline) {
  Layout layout = scenario.layout;
  layout.pipeline = pipeline;
  return with_layout(scenario, layout, "layout: {pipeline: " + std::to_string(pipeline) + "}");
}

// `factor` times as many ranks in a tensor group; they are data-parallel ones before, as far as there are so many.
Proposal with_tensor(const Scenario& scenario, int factor) {
  Layout layout = scenario.layout;
  layout.tensor.degree *= factor;
  std::string text = "layout: {tensor: {degree: " + std::to_string(layout.tensor.degree) + "}";
  if (layout.data.degree % factor == 0) {
    layout.data.degree /= factor;
    text += ", data: {degree: " + std::to_string(layout.data.degree) + "}";
  }
  return with_layout(scenario, layout, text + "}");
}

// Groups that stay inside a machine, of degrees that divide the model's shapes; costs that were measured are not
// divided, and a machine may lack the numbers of collectives.
bool allows_tensor(const Scenario& scenario) {
  if (scenario.profile || has_stage_data(scenario.layout)) return false;
  if (scenario.layout.tensor.degree > scenario.cluster.machine.devices) return false;
  return is_divisible(scenario.model, scenario.layout) && missing_numbers(scenario).empty();
}

// The modes that redo more than the scenario does, from little to all.
std::vector<Proposal> with_recompute_modes(const Scenario& scenario) {
  const Recompute& now = scenario.training.recompute;
  std::vector<Proposal> list;
  const auto add = [&](const Recompute& recompute) {
    list.push_back({"recompute: " + describe(recompute), scenario});
    list.back().scenario.training.recompute = recompute;
    list.back().scenario.recomputes = {recompute};
  };
  if (now.mode == RecomputeMode::full) return list;
  if (scenario.software.recompute_unit == RecomputeUnit::stage) {  // which redoes whole stages only
    add({.mode = RecomputeMode::full});
    return list;
  }
  if (now.mode == RecomputeMode::every_nth_layer) {
    for (int n = now.layers - 1; n > 1; --n) {
      add({.mode = RecomputeMode::every_nth_layer, .layers = n});
    }
    add({.mode = RecomputeMode::full});
    return list;
  }
  if (now.mode == RecomputeMode::none && !scenario.profile) add({.mode = RecomputeMode::selective});
  const int stages = stages_of(scenario.schedules.front(), scenario.layout.pipeline);
  const int most = (static_cast<int>(scenario.model.layers.size()) + stages - 1) / stages;
  for (int layers = now.layers + 1; layers < most; ++layers) {
    if (now.mode == RecomputeMode::selective) break;  // the others would be kept whole
    add({.mode = RecomputeMode::first_layers, .layers = layers});
  }
  add({.mode = RecomputeMode::full});
  return list;
}

// Rules that share out more among the scenario's data-parallel ranks, then weights and gradients that each microbatch
// lets go of, each as a scenario that says so has it.
std::vector<Proposal> with_shardings(const Scenario& scenario) {
  std::vector<Proposal> list;
  const DataLayout& now = scenario.layout.data;
  if (now.degree == 1 || has_stage_data(scenario.layout)) return list;
  const auto add = [&](Sharding sharding, const std::string& text, const ShardingAsked& asked) {
    Layout layout = scenario.layout;
    layout.data.sharding = sharding;
    const std::optional<Layout> settled = settled_sharding(layout, asked);
    const bool new_one = settled && settled->data != now && (list.empty() || list.back().scenario.layout != *settled);
    if (new_one) list.push_back(with_layout(scenario, *settled, "layout: {data: {" + text + "}}"));
  };
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3}) {
    if (sharding > now.sharding) add(sharding, "sharding: " + name_of(sharding), {});
  }
  if (has_zero_plus_plus(now) || now.sharding == Sharding::hsdp) return list;  // which have settings of their own
  const Sharding all = std::max(now.sharding, Sharding::zero3);
  add(all, "sharding: " + name_of(all) + ", reshard_after_forward: true, reduce: each_microbatch",
      {.reshard_after_forward = true, .reduces_each_microbatch = true});
  return list;
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
  const int layers = static_cast<int>(scenario.model.layers.size());
  for (Proposal& proposal : with_recompute_modes(scenario)) list.push_back(std::move(proposal));
  const std::vector<Offload> weighed = offloads_of(scenario);
  for (const Offload& offload :
       {Offload{.optimizer = true}, Offload{.parameters = true}, Offload{.activations = true},
        Offload{.optimizer = true, .parameters = true}, Offload{.optimizer = true, .activations = true},
        Offload{.optimizer = true, .activations = true, .parameters = true}}) {
    // With more on the host than any that was weighed.
    const auto is_more = [&](const Offload& other) {
      return offload != other && offload.optimizer >= other.optimizer && offload.activations >= other.activations &&
             offload.parameters >= other.parameters;
    };
    if (!has_host(scenario.cluster.machine) || !std::ranges::all_of(weighed, is_more)) continue;
    if (offload.parameters && !gathers_in_actions(scenario.layout)) continue;
    list.push_back({"offload: " + describe(offload), scenario});
    list.back().scenario.training.offload = offload;
    list.back().scenario.offloads = {};
  }
  for (Proposal& proposal : with_shardings(scenario)) list.push_back(std::move(proposal));
  const TensorLayout& tensor = scenario.layout.tensor;
  if (tensor.degree > 1 && !tensor.sequence_parallel) {
    list.push_back({"layout: {tensor: {sequence_parallel: true}}", scenario});
    list.back().scenario.layout.tensor.sequence_parallel = true;
    list.back().scenario.layouts = {list.back().scenario.layout};
  }
  for (int factor = 2; factor <= most_tensor_factor; factor *= 2) {
    Proposal proposal = with_tensor(scenario, factor);
    if (allows_tensor(proposal.scenario)) list.push_back(std::move(proposal));
  }
  const int most_ranks = has_stage_data(scenario.layout) ? 0 : layers;  // which data degrees would others have?
  for (int pipeline = scenario.layout.pipeline * 2; pipeline <= most_ranks; pipeline *= 2) {
    list.push_back(with_pipeline(scenario, pipeline));
  }
  return list;
}

// The fastest candidate of its own splits that fits.
std::optional<Candidate> fitting(const Scenario& scenario) {
  PlanningResult result = plan_scenario(scenario, predict_by_path);
  for (Candidate& candidate : result.candidates) {
    if (candidate.own && candidate.fits) return std::move(candidate);
  }
  return std::nullopt;
}

// Of several sizes of one change the first that fits is enough.
enum class ChangeOf : std::uint8_t { other, microbatch, recomputed_layers, offload, sharding, tensor, ranks };
ChangeOf change_of(const Proposal& proposal, const Scenario& scenario) {
  if (proposal.scenario.microbatches != scenario.microbatches) return ChangeOf::microbatch;
  if (proposal.scenario.layout.tensor.degree != scenario.layout.tensor.degree) return ChangeOf::tensor;
  if (proposal.scenario.layout.pipeline != scenario.layout.pipeline) return ChangeOf::ranks;
  if (proposal.scenario.layout.data != scenario.layout.data) return ChangeOf::sharding;
  if (proposal.scenario.training.offload != scenario.training.offload) return ChangeOf::offload;
  const bool recomputes = proposal.scenario.training.recompute != scenario.training.recompute;
  return recomputes ? ChangeOf::recomputed_layers : ChangeOf::other;
}

// `shortfall`: what the scenario comes to as it is.
std::string what_would_fit(const Scenario& scenario, const Candidate& shortfall) {
  std::string text;
  std::vector<ChangeOf> found;
  const Seconds as_it_is = predict_by_path(shortfall.plan).steps.front().duration;  // as the proposals are weighed
  for (const Proposal& proposal : proposals(scenario)) {
    const ChangeOf change = change_of(proposal, scenario);
    const bool again = change != ChangeOf::other && std::ranges::find(found, change) != found.end();
    if (again || found.size() == most_proposals) continue;
    const std::optional<Candidate> candidate = fitting(proposal.scenario);
    if (!candidate) continue;
    const double longer = candidate->iteration / as_it_is - 1;
    text += (found.empty() ? "this would fit: " : "; or ") + proposal.text + " (" + to_text(candidate->peak_bytes) +
            ", step " + change_text(longer) + ")";
    found.push_back(change);
  }
  if (!text.empty()) {
    return text + "; steps against the " + to_text(as_it_is) + " that this one would take if it fitted";
  }
  return "no single change fits (other splits, smaller microbatch, 1f1b, recompute, offload, sharding over "
         "data-parallel "
         "ranks, sequence parallelism, a larger tensor degree, more pipeline ranks were tried)";
}

}  // namespace

std::string describe_shortfall(const Candidate& candidate) {
  const auto [rank, summary] = fullest_rank(candidate.ranks);
  const Bytes memory = candidate.plan.cluster.machine.device.memory.value;
  const PeakMoment peak = summary.peak.value_or(PeakMoment{.held = {.kept = summary.activation_bytes}});
  std::array<std::pair<Bytes, const char*>, 6> owners = {{{summary.parameter_bytes, "parameters"},
                                                          {summary.gradient_bytes, "gradients"},
                                                          {summary.optimizer_bytes, "optimizer states"},
                                                          {peak.held.kept, "kept activations"},
                                                          {peak.held.messages, "messages"},
                                                          {peak.held.workspace, "workspace"}}};
  std::ranges::stable_sort(owners, std::ranges::greater{}, [](const auto& owner) { return owner.first; });
  std::string text = "rank " + std::to_string(rank) + " needs " + to_text(summary.peak_bytes) + " of " +
                     to_text(memory) + ", " + to_text(summary.peak_bytes - memory) + " too much";
  if (summary.peak) {
    text += ", in " + spelled_out(peak.action, candidate.plan.schedule);
  }
  for (const auto& [bytes, name] : owners) {
    if (bytes * std::int64_t{20} < summary.peak_bytes) break;  // the rest is less than a twentieth
    text += (name == owners.front().second ? ": " : ", ") + std::string(name) + " " + to_text(bytes);
  }
  return text;
}

namespace {

// A scenario's, of "file:line:column".
std::string file_of(std::string place) {
  for (int number = 0; number < 2; ++number) {
    const std::size_t colon = place.rfind(':');
    const bool digits = colon != std::string::npos && colon + 1 < place.size() &&
                        place.find_first_not_of("0123456789", colon + 1) == std::string::npos;
    if (digits) place.resize(colon);
  }
  return place;
}

// What refuses a candidate: a profile by its file, else a key of the scenario.
std::string named(const std::string& where, const Scenario& scenario) {
  return where == "profile" && !scenario.profile_file.empty() ? scenario.profile_file : where;
}

// A key of the scenario stands behind its file, a profile's file by itself.
std::string place_of(const std::string& refuses, const Scenario& scenario) {
  std::string file = file_of(scenario.place);
  if (refuses.empty()) return file;
  return file.empty() || refuses == scenario.profile_file || refuses.starts_with(file) ? refuses
                                                                                       : file + ": " + refuses;
}

// With the first reason and the first hint of each kind: thousands of candidates differ in numbers alone.
[[noreturn]] void throw_none_can_be_built(const PlanningResult& result, const Scenario& scenario) {
  std::set<std::string> kinds;
  std::vector<std::pair<std::string, std::string>> reasons;  // and where
  std::vector<std::string> hints;
  for (const Candidate& candidate : result.candidates) {
    if (!candidate.own || !kinds.insert(without_numbers(candidate.reason)).second) continue;
    reasons.emplace_back(named(candidate.where, scenario), candidate.reason);
    const bool is_new = !candidate.hint.empty() && std::ranges::find(hints, candidate.hint) == hints.end();
    if (is_new) hints.push_back(candidate.hint);
  }
  if (reasons.empty()) reasons.emplace_back("", "there is none");
  const auto elsewhere = [&](const auto& reason) { return reason.first != reasons.front().first; };
  const bool together = std::ranges::none_of(reasons, elsewhere);
  std::vector<std::string> texts;
  for (const auto& [where, reason] : reasons) {
    texts.push_back(together || where.empty() ? reason : fmt::format("{}: {}", where, reason));
  }
  throw InputError(place_of(together ? reasons.front().first : "", scenario),
                   fmt::format("no candidate can be built: {}", fmt::join(texts, "; ")),
                   fmt::format("{}", fmt::join(hints, "; or ")));
}

}  // namespace

void throw_nothing_fits(const PlanningResult& result, const Scenario& scenario) {
  const auto first = std::find_if(result.candidates.begin(), result.candidates.end(),
                                  [](const Candidate& candidate) { return candidate.own; });
  if (first == result.candidates.end() || !first->built) throw_none_can_be_built(result, scenario);
  throw InputError(scenario.place, "nothing fits in memory: " + first->reason,
                   leaves_layout_open(scenario) ? "more devices, or more layouts and recompute modes to choose from"
                                                : what_would_fit(scenario, *first));
}

}  // namespace plumb
