#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/yaml.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/model/files/read_model.hpp"
#include "common/model/parameters.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/generators/registry.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/schedule_options.hpp"

namespace plumb::sim {
namespace {

// One line of a list: its cells behind the name, and the same as JSON.
struct Listed {
  std::string name = {};
  std::vector<std::string> cells = {};
  Json json = {};
};

struct List {
  std::vector<std::string> header = {};
  std::vector<Listed> entries = {};
};

std::string text_at(const YamlValue& block, const std::vector<std::string>& path) {
  YamlValue value = block;
  for (const std::string& key : path) {
    const auto found = value.is_map() ? value.find(key) : std::nullopt;
    if (!found) return "";
    value = *found;
  }
  return value.is_scalar() ? value.text() : "";
}

Listed listed_machine(const ShippedFile& shipped, const std::string& description) {
  const YamlValue file = YamlValue::load(shipped.file);
  const std::string devices = text_at(file, {"devices"});
  const std::string device = text_at(file, {"device", "name"});
  const std::string memory = text_at(file, {"device", "memory", "value"});
  return {
      .name = shipped.name,
      .cells = {devices.empty() ? device : devices + " × " + device, memory, description},
      .json = {
          {"devices", devices.empty() ? Json() : Json(std::stoll(devices))}, {"device", device}, {"memory", memory}}};
}

Listed listed_model(const ShippedFile& shipped, const std::string& description) {
  const Model model = read_model(shipped.file);
  const ParameterCounts counts = count_parameters(model);
  return {
      .name = shipped.name,
      .cells = {count_text(static_cast<double>(counts.total)), count_text(static_cast<double>(counts.active)),
                std::to_string(model.layers.size()), description},
      .json = {{"parameters", counts.total}, {"active_parameters", counts.active}, {"layers", model.layers.size()}}};
}

List files_of(ShippedKind kind) {
  List list;
  switch (kind) {
    case ShippedKind::machine:
      list.header = {"machine", "devices", "memory", ""};
      break;
    case ShippedKind::model:
      list.header = {"model", "parameters", "active", "layers", ""};
      break;
    default:
      list.header = {std::string(name_of(kind)), ""};
  }
  for (const ShippedFile& shipped : shipped_files(kind)) {
    const std::string description = first_sentence(comment_on_top(shipped.file));
    Listed entry{.name = shipped.name, .cells = {description}, .json = Json::object()};
    if (kind == ShippedKind::machine) entry = listed_machine(shipped, description);
    if (kind == ShippedKind::model) entry = listed_model(shipped, description);
    entry.json["file"] = shipped.file.string();
    entry.json["description"] = description;
    list.entries.push_back(std::move(entry));
  }
  return list;
}

List schedules() {
  List list{.header = {"schedule", "source", "needs"}};
  for (const ScheduleEntry& entry : schedule_entries()) {
    list.entries.push_back({.name = entry.name,
                            .cells = {entry.source, entry.requirement},
                            .json = {{"title", entry.title},
                                     {"source", entry.source},
                                     {"requirement", entry.requirement},
                                     {"splits_backward", entry.splits_backward},
                                     {"uses_chunks", entry.uses_chunks}}});
  }
  return list;
}

ExitStatus print(const List& list, const std::string& key, bool json) {
  if (json) {
    Json entries = Json::array();
    for (const Listed& entry : list.entries) {
      Json object{{"name", entry.name}};
      object.update(entry.json);
      entries.push_back(std::move(object));
    }
    std::cout << to_text(Json{{key, entries}});
    return ExitStatus::done;
  }
  Table table{.header = list.header, .rows = {}, .left_columns = list.header.size()};
  for (const Listed& entry : list.entries) {
    table.rows.push_back({entry.name});
    table.rows.back().insert(table.rows.back().end(), entry.cells.begin(), entry.cells.end());
  }
  std::cout << to_text(table, colour_allowed(Stream::out));
  return ExitStatus::done;
}

void add_one(CLI::App& parent, Body& body, const std::string& name, const std::string& what,
             const std::function<List()>& make) {
  CLI::App& command = add_command(parent, name, what, "plumb list " + name);
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Prints one JSON object.");
  command.callback([&body, json, name, make] { body = [=] { return print(make(), name, *json); }; });
}

}  // namespace

void add_list(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "list", "Lists what plumb ships: each name stands for its file.",
                                  "plumb list models\nplumb list machines --json");
  command.require_subcommand(1);
  const auto files = [](ShippedKind kind) { return [kind] { return files_of(kind); }; };
  add_one(command, body, "scenarios", "Scenarios: a model on a cluster, to plan and simulate.",
          files(ShippedKind::scenario));
  add_one(command, body, "models", "Models.", files(ShippedKind::model));
  add_one(command, body, "machines", "Machines.", files(ShippedKind::machine));
  add_one(command, body, "software", "Training systems: their fusions, overlaps and exchanges.",
          files(ShippedKind::software));
  add_one(command, body, "schedules", "Pipeline schedules.", schedules);
}

void add_schedule_list(CLI::App& parent, Body& body) {
  CLI::App& command =
      add_command(parent, "list", "Lists all schedules, their source and what they need.", "plumb schedule list");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Prints one JSON object.");
  command.callback([&body, json] { body = [json] { return print(schedules(), "schedules", *json); }; });
}

}  // namespace plumb::sim
