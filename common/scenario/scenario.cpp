#include "common/scenario/scenario.hpp"

#include <array>

#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

constexpr std::array<std::string_view, 5> split_names = {"uniform", "parameters", "dynamic", "counts", "megatron"};

}  // namespace

std::string_view name_of(SplitMethod method) { return split_names.at(static_cast<std::size_t>(method)); }

const std::vector<std::string>& slices_by_names() {
  static const std::vector<std::string> names = {"tokens", "work"};
  return names;
}

std::int64_t microbatches_of(const Scenario& scenario, std::int64_t microbatch) {
  return scenario.training.global_batch / (microbatch * batch_shards(scenario.layout));
}

std::vector<Layout> layouts_of(const Scenario& scenario) {
  return scenario.layouts.empty() ? std::vector<Layout>{scenario.layout} : scenario.layouts;
}

std::vector<Recompute> recomputes_of(const Scenario& scenario) {
  return scenario.recomputes.empty() ? std::vector<Recompute>{scenario.training.recompute} : scenario.recomputes;
}

std::vector<Offload> offloads_of(const Scenario& scenario) {
  return scenario.offloads.empty() ? std::vector<Offload>{scenario.training.offload} : scenario.offloads;
}

std::string describe(const Offload& offload) {
  std::string text;
  const auto add = [&](bool is, const char* name) {
    if (is) text += (text.empty() ? "" : "+") + std::string(name);
  };
  add(offload.optimizer, "optimizer");
  add(offload.parameters, "parameters");
  add(offload.activations, "activations");
  return text.empty() ? "none" : text;
}

const std::vector<std::string>& offload_names() {
  static const std::vector<std::string> names = {"none", "optimizer", "parameters", "activations"};
  return names;
}

bool leaves_layout_open(const Scenario& scenario) {
  return layouts_of(scenario).size() * recomputes_of(scenario).size() * offloads_of(scenario).size() > 1;
}

std::int64_t combinations(const Scenario& scenario) {
  return std::ssize(layouts_of(scenario)) * std::ssize(recomputes_of(scenario)) * std::ssize(offloads_of(scenario)) *
         std::ssize(scenario.microbatches) * std::ssize(scenario.schedules) * std::ssize(scenario.splits);
}

PlanChoice only_choice(const Scenario& scenario) {
  return {.microbatch = scenario.microbatches.front(),
          .schedule = scenario.schedules.front(),
          .split = scenario.splits.front()};
}

ScheduleChoice choice_of(const Schedule& schedule) {
  ScheduleChoice choice{.name = schedule.name,
                        .chunks = schedule.chunks,
                        .slices = schedule.slices,
                        .slice_tokens = schedule.slice_tokens,
                        .update_every = schedule.update_every};
  if (schedule.name.starts_with(schedule_from_file)) {
    choice.given = schedule;
  } else {
    choice.overlap = !schedule.overlapped.empty() && find_schedule(schedule.name).uses_overlap;
  }
  return choice;
}

bool is_made_for_times(const ScheduleChoice& schedule) {
  return !schedule.given && find_schedule(schedule.name).uses_times;
}

}  // namespace plumb
