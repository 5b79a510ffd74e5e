#include "common/scenario_file/other_files.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb {
namespace {

// What nothing but a timeline has; and what a machine has, all of it, and no model.
constexpr std::string_view timeline_key = "traceEvents";
constexpr std::array<std::string_view, 3> machine_keys = {"device", "inside", "outside"};

}  // namespace

void refuse_other_files(const std::vector<std::string>& keys, const std::string& path) {
  const auto has = [&](std::string_view key) { return std::ranges::count(keys, key) > 0; };
  if (has(timeline_key)) {
    throw InputError(path, "is a timeline: expected a scenario, a plan or a model",
                     "plumb diff takes two timelines, plumb report any number; Perfetto opens one");
  }
  if (!std::ranges::all_of(machine_keys, has)) return;
  throw InputError(path, "is a machine: expected a scenario, a plan or a model",
                   "in a scenario, cluster: {machine: " + path + "}");
}

}  // namespace plumb
