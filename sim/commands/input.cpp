#include "sim/commands/input.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "common/base/document/json.hpp"
#include "common/base/document/yaml.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/other_files.hpp"
#include "common/timeline/trace/trace.hpp"

namespace plumb::sim {
namespace {

constexpr std::array<std::string_view, 8> scenario_keys = {"cluster", "training", "layout",  "schedule",
                                                           "split",   "software", "profile", "for"};

// Stands in the first line of a plan, so that a plan cut short is still known as one.
constexpr std::string_view plan_mark = "\"plumb plan\"";

// Keys that only a plan has; and keys of a Hugging Face config.
constexpr std::array<std::string_view, 4> plan_keys = {"format", "version", "boundary", "costs"};
constexpr std::array<std::string_view, 4> shape_keys = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                                        "vocab_size"};
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

// Returns the keys at the top of a file, which may be as large as a timeline; none if it is malformed.
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
  if (is_machine(keys)) return InputKind::machine;
  if (!has_any(keys, config_keys) && has_any(keys, shape_keys)) {
    throw InputError(path, "key 'model_type' is missing: a Hugging Face config.json names its kind of model there",
                     R"("model_type": "llama", or the value of the model's own config.json)");
  }
  refuse_other_files(keys, path);
  if (has_any(keys, plan_keys)) return InputKind::plan;
  return has_any(keys, scenario_keys) && !has_any(keys, config_keys) ? InputKind::scenario : InputKind::model;
}

}  // namespace

InputKind kind_of_input(const std::string& path) {
  const std::string text = read_file(path);
  if (begins_as_json(text)) return kind_of_json(text, path);
  const YamlValue file = YamlValue::parse(text, path);
  if (file.is_map() && is_machine(file.keys())) return InputKind::machine;
  if (file.is_map() && is_software(file.keys())) return InputKind::software;
  if (file.is_map()) refuse_other_files(file.keys(), path);
  return !file.is_map() || has_any(file.keys(), scenario_keys) ? InputKind::scenario : InputKind::model;
}

Timeline timeline_in(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return read_timeline(path);  // a pipe can be read once
  std::string text(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const std::string hint =
      "plumb simulate FILE -o predicted.json and plumb-exec run PLAN -o measured.json write timelines";
  if (!begins_as_json(text)) throw InputError(path, "is no timeline, which is JSON", hint);
  if (text.find(plan_mark) != std::string::npos) {
    throw InputError(path, "is a plan, expected a timeline",
                     "plumb simulate " + path + " -o predicted.json predicts it");
  }
  return read_timeline(path);
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
