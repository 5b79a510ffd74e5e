#include "common/planner/shortfall.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/planner/remedies.hpp"
#include "common/schedule/action_words.hpp"

namespace plumb {

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

// Returns the file of "file:line:column".
std::string file_of(std::string place) {
  for (int number = 0; number < 2; ++number) {
    const std::size_t colon = place.rfind(':');
    const bool digits = colon != std::string::npos && colon + 1 < place.size() &&
                        place.find_first_not_of("0123456789", colon + 1) == std::string::npos;
    if (digits) place.resize(colon);
  }
  return place;
}

// Name of the part that refuses a candidate: a profile's file, else a key of the scenario.
std::string named(const std::string& where, const Scenario& scenario) {
  return where == "profile" && !scenario.profile_file.empty() ? scenario.profile_file : where;
}

// Puts a key of the scenario behind the scenario's file; a profile's file stands alone.
std::string place_of(const std::string& refuses, const Scenario& scenario) {
  std::string file = file_of(scenario.place);
  if (refuses.empty()) return file;
  return file.empty() || refuses == scenario.profile_file || refuses.starts_with(file) ? refuses
                                                                                       : file + ": " + refuses;
}

// Names the first reason and the first hint of each kind: thousands of candidates differ in numbers alone.
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
  const bool on_this_machine = scenario.cluster.machine.device.type == DeviceType::cpu;
  throw InputError(scenario.place, "nothing fits in memory: " + first->reason,
                   describe_remedies(scenario, *first) +
                       (on_this_machine ? "; or GPUs: cluster: {machine: dgx-h100} (plumb list machines)" : ""));
}

}  // namespace plumb
