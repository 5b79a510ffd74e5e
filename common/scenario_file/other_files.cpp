#include "common/scenario_file/other_files.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb {
namespace {

// Only a timeline has the first; a machine has all of the others, and no model has them.
constexpr std::string_view timeline_key = "traceEvents";
constexpr std::array<std::string_view, 3> machine_keys = {"device", "inside", "outside"};
// Software has these, and no device.
constexpr std::array<std::string_view, 2> software_keys = {"name", "source"};

bool has(const std::vector<std::string>& keys, std::string_view key) { return std::ranges::count(keys, key) > 0; }

}  // namespace

bool is_machine(const std::vector<std::string>& keys) {
  const auto there = [&](std::string_view key) { return has(keys, key); };
  return std::ranges::all_of(machine_keys, there) || (has(keys, "like") && std::ranges::any_of(machine_keys, there));
}

bool is_software(const std::vector<std::string>& keys) {
  return !is_machine(keys) && std::ranges::all_of(software_keys, [&](std::string_view key) { return has(keys, key); });
}

void refuse_other_files(const std::vector<std::string>& keys, const std::string& path) {
  if (has(keys, timeline_key)) {
    throw InputError(path, "is a timeline: expected a scenario, a plan or a model",
                     "plumb diff takes two timelines, plumb report any number; Perfetto opens one");
  }
  if (!is_machine(keys)) return;
  throw InputError(path, "is a machine: expected a scenario, a plan or a model",
                   "in a scenario, cluster: {machine: " + path + "}");
}

}  // namespace plumb
