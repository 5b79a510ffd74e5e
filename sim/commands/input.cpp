#include "sim/commands/input.hpp"

#include <algorithm>
#include <array>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/yaml.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/scenario_blocks.hpp"

namespace plumb::sim {
namespace {

constexpr std::array<std::string_view, 7> scenario_keys = {"cluster", "training", "layout", "schedule",
                                                           "split",   "software", "profile"};

// Stands in the first line of a plan, so that one cut short is still told apart.
constexpr std::string_view plan_mark = "\"plumb plan\"";

bool has_key(const YamlValue& file, std::string_view key) {
  const std::vector<std::string> keys = file.keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

bool is_json(const std::string& path) {
  const std::string text = read_file(path);
  const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");  // blanks, and the byte-order mark of UTF-8
  return first != std::string::npos && text[first] == '{';
}

InputKind kind_of_input(const std::string& path) {
  const std::string text = read_file(path);
  if (is_json(path)) return text.find(plan_mark) != std::string::npos ? InputKind::plan : InputKind::model;
  const YamlValue file = YamlValue::parse(text, path);
  if (!file.is_map()) return InputKind::scenario;
  const bool scenario =
      std::any_of(scenario_keys.begin(), scenario_keys.end(), [&](std::string_view key) { return has_key(file, key); });
  return scenario ? InputKind::scenario : InputKind::model;
}

Plan with_profile(const Plan& plan, const std::string& profile) {
  const SplitChoice split{.method = SplitMethod::counts, .counts = plan.split.layers, .megatron = {}};
  const ScheduleChoice schedule = choice_of(plan.schedule);
  Scenario scenario = scenario_of(plan);
  scenario.microbatches = {plan.training.microbatch};
  scenario.schedules = {schedule};
  scenario.splits = {split};
  scenario.profile = read_profile(profile);
  Plan measured = plan;
  measured.costs = make_plan(scenario, {plan.training.microbatch, schedule, split}).costs;
  return measured;
}

}  // namespace plumb::sim
