#include "common/plan/shipped.hpp"

#include <algorithm>
#include <cstdlib>

namespace plumb {
namespace {

std::vector<std::filesystem::path> searched_folders(const YamlValue& value) {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(value.place().file).parent_path()};
  for (const auto& folder : shipped_scenarios()) folders.push_back(folder);
  return folders;
}

// Names of the files beside the one that was looked for, as they would be written.
std::vector<std::string> neighbours(const std::filesystem::path& name, const YamlValue& value) {
  std::vector<std::string> names;
  for (const auto& folder : searched_folders(value)) {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder / name.parent_path(), missing)) {
      if (entry.is_regular_file(missing)) names.push_back((name.parent_path() / entry.path().filename()).string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::vector<std::filesystem::path> shipped_scenarios() {
  const char* given = std::getenv("PLUMB_SCENARIOS");
  if (given != nullptr && *given != '\0') return {given};
  std::vector<std::filesystem::path> folders;
  for (const char* folder : {PLUMB_SCENARIOS_SOURCE, PLUMB_SCENARIOS_INSTALLED}) {
    std::error_code missing;
    if (std::filesystem::is_directory(folder, missing)) folders.emplace_back(folder);
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
  const std::optional<std::filesystem::path> found = find_file(name, value);
  if (found) return *found;
  std::string looked;
  for (const auto& folder : searched_folders(value)) {
    looked += (looked.empty() ? "" : ", ") + (folder.empty() ? std::string(".") : folder.string());
  }
  const std::vector<std::string> others = neighbours(name, value);
  value.fail(value.path() + ": there is no file '" + name + "' (looked in " + looked + ")",
             others.empty() ? "" : did_you_mean(name, others));
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
