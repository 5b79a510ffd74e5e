// `plumb explain KEY` and `plumb schema KIND`: the tables of fields, for people and for editors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/json_schema.hpp"
#include "common/base/files.hpp"
#include "common/base/synonyms.hpp"
#include "common/base/text.hpp"
#include "common/study/file_kinds.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {
namespace {

struct ExplainOptions {
  std::string key;
  bool json = false;
};

std::string default_of(const Field& field) {
  if (field.required) return field.unless.empty() ? "none: required" : "none: required without " + field.unless;
  if (!field.with.empty()) return "none: required with " + field.with;
  return field.default_text;
}

std::string keys_table(const FieldBlock& block) {
  Table table{.header = {"key", "default", "meaning"}, .rows = {}, .left_columns = 2, .left_last = true};
  for (const Field& field : block.fields) table.rows.push_back({field.key, default_of(field), field.description});
  return to_text(table);
}

std::string place_text(const FieldPlace& place) {
  std::string text = place.field == nullptr ? "the file of a " + place.kind->name : place.path;
  return text + (place.field == nullptr ? "" : "  (in a " + place.kind->name + ")");
}

std::string text_of(const FieldPlace& place) {
  std::string text = place_text(place) + "\n";
  if (place.field == nullptr) return text + "  " + place.kind->description + "\n" + keys_table(*place.block);
  const Field& field = *place.field;
  text += "  " + field.description + "\n";
  text += "  takes    " + describe(field.shape) + "\n";
  if (!default_of(field).empty()) text += "  default  " + default_of(field) + "\n";
  text += "  example  " + field.key + ": " + example_of(field) + "\n";
  std::string others;
  for (const std::string& other : other_keys(field.key)) others += (others.empty() ? "" : ", ") + other;
  if (!others.empty()) text += "  others call it " + others + "\n";
  for (const FieldBlock* block : blocks_of(field.shape)) text += keys_table(*block);
  return text;
}

Json json_of(const FieldPlace& place) {
  Json json = {{"file", place.kind->name}, {"path", place.path}};
  std::vector<const FieldBlock*> blocks = {place.block};
  if (place.field != nullptr) {
    const Field& field = *place.field;
    json["description"] = field.description;
    json["takes"] = describe(field.shape);
    json["required"] = field.required;
    if (!field.default_text.empty()) json["default"] = field.default_text;
    json["example"] = example_of(field);
    blocks = blocks_of(field.shape);
  } else {
    json["description"] = place.kind->description;
  }
  json["keys"] = Json::array();
  for (const FieldBlock* block : blocks) {
    for (const Field& field : block->fields) json["keys"].push_back(field.key);
  }
  return json;
}

// Paths as written in a file, also with spaces or a colon at the end.
std::string trimmed(std::string key) {
  std::erase(key, ' ');
  while (key.ends_with(':') || key.ends_with('.')) key.pop_back();
  return key;
}

ExitStatus explain(const ExplainOptions& options) {
  const std::string key = trimmed(options.key);
  std::vector<FieldPlace> places = find_fields(key);
  std::string remark;
  if (places.empty()) {
    const std::string last = key.substr(key.find_last_of('.') + 1);
    const std::string meant = key_of_others(last);
    if (meant.empty()) throw InputError("explain", "no key is called '" + key + "'", did_you_mean(last, all_keys()));
    places = find_fields(meant);
    remark = fmt::format("'{}' is called '{}' here.\n\n", last, meant);
  }
  if (options.json) {
    Json matches = Json::array();
    for (const FieldPlace& place : places) matches.push_back(json_of(place));
    std::cout << to_text(Json{{"key", key}, {"matches", matches}});
    return ExitStatus::done;
  }
  std::cout << remark;
  for (std::size_t i = 0; i < places.size(); ++i) std::cout << (i > 0 ? "\n" : "") << text_of(places[i]);
  return ExitStatus::done;
}

}  // namespace

void add_explain(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "explain", "Explains a key of a file: meaning, values, default, example.",
                                  "plumb explain training.recompute");
  const auto options = std::make_shared<ExplainOptions>();
  command.add_option("KEY", options->key, "A key, or the path of one.")->required();
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] { body = [options] { return explain(*options); }; });
}

void add_schema(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "schema", "Prints the JSON Schema of a kind of file, which editors use.",
                                  "plumb schema scenario > scenario.schema.json");
  const auto kind = std::make_shared<std::string>();
  std::string names;
  for (const FileKind& one : file_kinds()) names += (names.empty() ? "" : ", ") + one.name;
  command.add_option("KIND", *kind, "One of: " + names + ".")->required();
  command.callback([&body, kind] {
    body = [kind] {
      const FileKind& found = file_kind(*kind);
      std::cout << json_schema("plumb " + found.name, found.description, found.shape);
      return ExitStatus::done;
    };
  });
}

}  // namespace plumb::sim
