#include "sim/commands/input.hpp"

#include <algorithm>
#include <array>

#include "common/base/document/json.hpp"
#include "common/base/document/yaml.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/other_files.hpp"

namespace plumb::sim {
namespace {

constexpr std::array<std::string_view, 8> scenario_keys = {"cluster", "training", "layout",  "schedule",
                                                           "split",   "software", "profile", "for"};

// Stands in the first line of a plan, so that one cut short is still told apart.
constexpr std::string_view plan_mark = "\"plumb plan\"";

// What a plan has beside them, and no scenario; and a Hugging Face config.
constexpr std::array<std::string_view, 4> plan_keys = {"format", "version", "boundary", "costs"};
constexpr std::array<std::string_view, 2> config_keys = {"model_type", "architectures"};

template <class Keys>
bool has_any(const std::vector<std::string>& keys, const Keys& wanted) {
  return std::ranges::any_of(keys, [&](const std::string& key) { return std::ranges::count(wanted, key) > 0; });
}

// An object whose first key is quoted: `{model: …}` is YAML alone.
bool begins_as_json(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\xef\xbb\xbf";  // and the byte-order mark of UTF-8
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos || text[first] != '{') return false;
  const std::size_t next = text.find_first_not_of(blanks, first + 1);
  return next == std::string_view::npos || text[next] == '"' || text[next] == '}';
}

// Of the whole file, which may be as large as a timeline; none where it is malformed.
std::vector<std::string> json_keys(const std::string& text) {
  std::vector<std::string> keys;
  const auto keep_nothing_within = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key) keys.push_back(value.get<std::string>());
    return depth == 0;
  };
  return Json::parse(text, keep_nothing_within, false).is_discarded() ? std::vector<std::string>{} : keys;
}

InputKind kind_of_json(const std::string& text, const std::string& path) {
  if (text.find(plan_mark) != std::string::npos) return InputKind::plan;
  const std::vector<std::string> keys = json_keys(text);
  refuse_other_files(keys, path);
  if (has_any(keys, plan_keys)) return InputKind::plan;
  return has_any(keys, scenario_keys) && !has_any(keys, config_keys) ? InputKind::scenario : InputKind::model;
}

}  // namespace

InputKind kind_of_input(const std::string& path) {
  const std::string text = read_file(path);
  if (begins_as_json(text)) return kind_of_json(text, path);
  const YamlValue file = YamlValue::parse(text, path);
  if (file.is_map()) refuse_other_files(file.keys(), path);
  return !file.is_map() || has_any(file.keys(), scenario_keys) ? InputKind::scenario : InputKind::model;
}

Plan with_profile(const Plan& plan, const std::string& profile) {
  const SplitChoice split{.method = SplitMethod::counts, .counts = plan.split.layers, .megatron = {}};
  const ScheduleChoice schedule = choice_of(plan.schedule);
  Scenario scenario = scenario_of(plan);
  scenario.microbatches = {plan.training.microbatch};
  scenario.schedules = {schedule};
  scenario.splits = {split};
  scenario.profile = read_profile(profile);
  scenario.profile_file = profile;
  Plan measured = plan;
  measured.costs = make_plan(scenario, {plan.training.microbatch, schedule, split}).costs;
  return measured;
}

}  // namespace plumb::sim
