#include "common/scenario_file/shipped.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/cluster/machine_yaml.hpp"

namespace plumb {
namespace {

std::vector<std::filesystem::path> searched_folders(const YamlValue& value) {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(value.place().file).parent_path()};
  for (const auto& folder : shipped_scenarios()) folders.push_back(folder);
  return folders;
}

// Names of the files in a folder within these, as they would be written.
std::vector<std::string> files_in(const std::filesystem::path& inside,
                                  const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    std::error_code missing;
    const std::filesystem::path outside = folder.empty() ? "." : folder;
    for (const auto& entry : std::filesystem::directory_iterator(outside / inside, missing)) {
      if (entry.is_regular_file(missing)) names.push_back((inside / entry.path().filename()).string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// "pp4·tp2·dp2·fsdp, sp", as tables print a layout (`layout_text` of sim/commands/describe.hpp), in a scenario's keys;
// empty: it is none. Where a part of it is none that is said so simply: how degrees are written.
std::string layout_in_keys(std::string printed) {
  for (const std::string_view between : {"·", ","}) {
    for (std::size_t at = 0; (at = printed.find(between)) != std::string::npos;)
      printed.replace(at, between.size(), " ");
  }
  static const std::regex form("(pp|tp|dp)(\\d{1,6})( .*)?");
  if (!std::regex_match(printed, form)) return "";
  static const std::regex one("(pp|tp|dp)(\\d{1,6})");
  static const std::regex by_stage("dp(\\d{1,6}(?:-\\d{1,6})+)");
  static const std::regex rule("zero[123]|fsdp");
  std::string pipeline;
  std::string tensor;
  std::string data;
  bool known = true;
  std::istringstream parts(printed);
  for (std::string part; parts >> part;) {
    std::smatch found;
    if (std::regex_match(part, found, one)) {
      if (found[1] == "pp") pipeline = "pipeline: " + found[2].str();
      if (found[1] == "tp") tensor = "degree: " + found[2].str();
      if (found[1] == "dp") data = "degree: " + found[2].str();
    } else if (std::regex_match(part, found, by_stage)) {
      data = "by_stage: [" + std::regex_replace(found[1].str(), std::regex("-"), ", ") + "]";
    } else if (part == "sp" && !tensor.empty()) {
      tensor += ", sequence_parallel: true";
    } else if (std::regex_match(part, rule) && !data.empty()) {
      data += ", sharding: " + part;
    } else {
      known = false;
    }
  }
  if (!known) return "write its keys, as in layout: {pipeline: 4, tensor: {degree: 2, sequence_parallel: true}}";
  std::string keys = pipeline;
  for (const auto& [key, block] : {std::pair{"tensor", tensor}, {"data", data}}) {
    if (!block.empty()) keys.append(keys.empty() ? "" : ", ").append(key).append(": {").append(block).append("}");
  }
  return "layout: {" + keys + "}";
}

// A name without folder is looked for in the folder that is called like the key, too. Shipped files outside of it are
// scenarios, which such a key never means.
std::string nearest_file(const std::filesystem::path& name, const YamlValue& value) {
  const std::vector<std::filesystem::path> folders = searched_folders(value);
  const std::string key = value.path().substr(value.path().find_last_of('.') + 1);
  if (key == "layout") {
    if (std::string keys = layout_in_keys(name.string()); !keys.empty()) return keys;
  }
  if (!name.has_parent_path()) {
    const std::vector<std::string> files = files_in(key + "s", folders);
    std::vector<std::string> beside;
    if (name.has_extension()) beside = files_in("", {folders.front()});
    std::erase(beside, std::filesystem::path(value.place().file).filename().string());
    if (const auto nearest = nearest_word(name.string(), beside)) return "did you mean '" + beside[*nearest] + "'?";
    std::vector<std::string> stems;
    for (const std::string& file : files) stems.push_back(std::filesystem::path(file).stem().string());
    const auto nearest = nearest_word(name.stem().string(), stems);
    if (nearest) return "did you mean '" + files[*nearest] + "'?";
    if (!files.empty()) return did_you_mean(name.string(), files);
  }
  if (key == name_of(ShippedKind::model) && name.has_parent_path() && !name.has_extension()) {
    return "download its config.json and name that, or take a name of plumb list models";
  }
  const std::vector<std::string> others = files_in(name.parent_path(), folders);
  if (name.parent_path() == key + "s" && !others.empty()) return did_you_mean(name.string(), others);
  const auto nearest = nearest_word(name.string(), others);  // a folder of the user's may have any number of others
  return nearest ? "did you mean '" + others[*nearest] + "'?" : "";
}

// Returns the folder of an installation beside the running program; empty if /proc does not name the program.
std::filesystem::path beside_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path() : (program.parent_path() / PLUMB_SCENARIOS_FROM_PROGRAM).lexically_normal();
}

// Folders of `scenarios/` without scenarios.
constexpr std::array<std::string_view, 5> other_folders = {"machines", "models", "software", "published", "what-if"};

std::vector<std::filesystem::path> scenario_folders(const std::filesystem::path& shipped) {
  std::vector<std::filesystem::path> folders = {shipped};
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(shipped, missing)) {
    const bool other = std::ranges::count(other_folders, entry.path().filename().string()) > 0;
    if (entry.is_directory(missing) && !other) folders.push_back(entry.path());
  }
  return folders;
}

// By its name, or by its file's name: "deepseek-v3", "deepseek-v3.yaml", "models/deepseek-v3.yaml".
std::optional<ShippedFile> shipped_file(const std::string& name, ShippedKind kind) {
  for (ShippedFile& shipped : shipped_files(kind)) {
    const std::string folder = shipped.file.parent_path().filename().string();
    const std::string file = shipped.name + ".yaml";
    const std::string path = (std::filesystem::path(folder) / file).generic_string();
    if (name == shipped.name || name == file || (kind != ShippedKind::scenario && name == path)) {
      return std::move(shipped);
    }
  }
  return std::nullopt;
}

std::string a(ShippedKind kind) { return (kind == ShippedKind::software ? "" : "a ") + std::string(name_of(kind)); }

std::string list_command(ShippedKind kind) {
  return "plumb list " + std::string(name_of(kind)) + (kind == ShippedKind::software ? "" : "s");
}

[[noreturn]] void fail_of_unknown_input(const std::string& argument, const std::vector<ShippedKind>& kinds) {
  std::string wanted;
  std::string lists;
  std::vector<std::string> names;
  for (const ShippedKind kind : kinds) {
    wanted += (wanted.empty() ? "" : kind == kinds.back() ? " or " : ", ") + std::string(name_of(kind));
    lists += (lists.empty() ? "" : ", ") + list_command(kind);
    for (const ShippedFile& shipped : shipped_files(kind)) names.push_back(shipped.name);
  }
  for (const ShippedKind kind : shipped_kinds) {
    if (std::ranges::count(kinds, kind) > 0 || !shipped_file(argument, kind)) continue;
    throw InputError(argument, "is " + a(kind) + " that plumb ships, expected a " + wanted,
                     "plumb show " + argument + " shows it");
  }
  std::error_code missing;
  if (std::filesystem::is_directory(argument, missing)) {
    throw InputError(argument, "is a folder, expected a file or the name of a " + wanted, lists + " lists the names");
  }
  const auto nearest = nearest_word(argument, names);
  const bool path = argument.find('/') != std::string::npos || std::filesystem::path(argument).has_extension();
  throw InputError(
      argument,
      path ? "cannot be read: No such file or directory" : "there is no such file, and no " + wanted + " of that name",
      nearest ? "did you mean '" + names[*nearest] + "'?"
      : path  ? ""
              : lists + " lists the names");
}

}  // namespace

std::vector<std::filesystem::path> shipped_scenarios() {
  const char* given = std::getenv("PLUMB_SCENARIOS");
  if (given != nullptr && *given != '\0') return {given};
  std::vector<std::filesystem::path> folders;
  for (const std::filesystem::path& folder : {beside_program(), std::filesystem::path(PLUMB_SCENARIOS_SOURCE)}) {
    std::error_code missing;
    if (std::filesystem::is_directory(folder, missing)) folders.push_back(folder);
  }
  return folders;
}

std::optional<std::filesystem::path> find_file(const std::string& name, const YamlValue& value) {
  for (const auto& folder : searched_folders(value)) {
    std::error_code missing;
    if (std::filesystem::is_regular_file(folder / name, missing)) return folder / name;
  }
  return std::nullopt;
}

std::filesystem::path find_file(const YamlValue& value) {
  const std::string name = value.text();
  if (name.empty()) value.fail(value.path() + ": is empty, expected a file");
  const std::optional<std::filesystem::path> found = find_file(name, value);
  if (found) return *found;
  if (value.path() == name_of(ShippedKind::model)) {
    if (const auto shipped = shipped_file(name, ShippedKind::model)) return shipped->file;
  }
  for (const auto& folder : searched_folders(value)) {
    std::error_code missing;
    if (!std::filesystem::is_directory(folder / name, missing)) continue;
    value.fail(value.path() + ": '" + excerpt(name) + "' is a folder, expected a file");
  }
  std::string looked;
  for (const auto& folder : searched_folders(value)) {
    looked += (looked.empty() ? "" : ", ") + (folder.empty() ? std::string(".") : folder.string());
  }
  value.fail(value.path() + ": there is no file '" + excerpt(name) + "' (looked in " + looked + ")",
             nearest_file(name, value));
}

void fail_of_missing_file(const YamlValue& value) {
  std::string looked = PLUMB_SCENARIOS_SOURCE;
  if (const auto folders = shipped_scenarios(); !folders.empty()) looked = folders.front().string();
  value.fail(value.path() + ": the file of '" + excerpt(value.text()) + "', which plumb ships, is not in " + looked,
             "has the folder been moved? PLUMB_SCENARIOS=DIR names scenarios/ of plumb's sources");
}

std::optional<std::filesystem::path> shipped_machine(const std::string& name) {
  std::error_code missing;
  for (const auto& folder : shipped_scenarios()) {
    std::filesystem::path file = folder / "machines" / (name + ".yaml");
    if (std::filesystem::is_regular_file(file, missing)) return file;
  }
  return std::nullopt;
}

std::string_view name_of(ShippedKind kind) {
  constexpr std::array<std::string_view, 4> names = {"scenario", "model", "machine", "software"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<ShippedFile> shipped_files(ShippedKind kind) {
  std::map<std::string, std::filesystem::path> found;  // the first folder counts
  for (const std::filesystem::path& shipped : shipped_scenarios()) {
    std::vector<std::filesystem::path> folders;
    if (kind == ShippedKind::scenario) {
      folders = scenario_folders(shipped);
    } else {
      folders = {shipped / (std::string(name_of(kind)) + (kind == ShippedKind::software ? "" : "s"))};
    }
    for (const std::filesystem::path& folder : folders) {
      const std::filesystem::path base = kind == ShippedKind::scenario ? shipped : folder;
      std::error_code missing;
      for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
        if (!entry.is_regular_file(missing) || entry.path().extension() != ".yaml") continue;
        found.emplace(entry.path().lexically_relative(base).replace_extension().string(), entry.path());
      }
    }
  }
  std::vector<ShippedFile> files;
  for (auto& [name, file] : found) files.push_back({.name = name, .file = std::move(file)});
  return files;
}

std::string comment_on_top(const std::filesystem::path& file) {
  std::istringstream lines(read_file(file));
  std::string text;
  for (std::string line; std::getline(lines, line) && line.starts_with("#");) {
    const std::size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) break;
    text += (text.empty() ? "" : " ") + line.substr(begin);
  }
  return text;
}

std::string first_sentence(const std::string& text) {
  constexpr std::array<std::string_view, 2> marks = {". ", "? "};
  std::size_t end = text.size();
  for (const std::string_view mark : marks) end = std::min(end, text.find(mark));
  return text.substr(0, std::min(end + 1, text.size()));
}

std::string input_file(const std::string& argument, const std::vector<ShippedKind>& kinds) {
  if (argument == standard_stream) return argument;
  std::error_code missing;
  const bool is_file = std::filesystem::exists(argument, missing) && !std::filesystem::is_directory(argument, missing);
  for (const ShippedKind kind : kinds) {
    const std::optional<ShippedFile> shipped = shipped_file(argument, kind);
    if (!shipped) continue;
    if (!is_file) return shipped->file.string();
    if (argument == shipped->name) {
      print_note("read the file '" + argument + "'; plumb also ships " + a(kind) + " of that name, " +
                 shipped->file.string());
    }
    return argument;
  }
  if (is_file) return argument;
  fail_of_unknown_input(argument, kinds);
}

YamlValue block_or_file(const YamlValue& value, const std::string& key) {
  if (!value.is_text()) return value;
  YamlValue file = YamlValue::load(find_file(value));
  if (!file.is_map()) return file;
  const std::vector<std::string> keys = file.keys();
  if (keys.size() == 1 && keys.front() == key) return file.require(key);
  return file;
}

}  // namespace plumb
