#include "exec/host/enough_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/text.hpp"
#include "common/graph/memory.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/host_memory.hpp"
#include "common/schedule/weight_versions.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

std::string text_if_there(const fs::path& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return "";
  try {
    return read_file(path);
  } catch (const InputError&) {
    return "";
  }
}

// The number behind `key` at the start of a line; of an empty key the text's first.
std::optional<std::int64_t> number_after(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    if (std::int64_t value = 0; rest >> value) return value;
  }
  return std::nullopt;
}

struct LimitFiles {
  const char* limit;
  const char* used;
  const char* idle;  // of memory.stat: pages of files
};
constexpr LimitFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr LimitFiles version_2{"memory.max", "memory.current", "inactive_file "};

// What the cgroup and those above it leave.
void take_limits(std::optional<std::int64_t>& least, const fs::path& top, std::string group, const LimitFiles& files) {
  while (true) {
    const fs::path folder = top / fs::path(group).relative_path();
    const auto limit = number_after(text_if_there(folder / files.limit), "");
    const auto used = number_after(text_if_there(folder / files.used), "");
    if (limit && used) {
      const std::int64_t idle = number_after(text_if_there(folder / "memory.stat"), files.idle).value_or(0);
      const std::int64_t left = std::max<std::int64_t>(*limit - *used + idle, 0);
      least = std::min(least.value_or(left), left);
    }
    if (group.size() <= 1) return;
    group = fs::path(group).parent_path().string();
  }
}

}  // namespace

void require_memory(const MemoryNeed& need, const MemoryThere& there) {
  if (!there.bytes || need.bytes <= *there.bytes) return;
  throw InputError(need.where,
                   fmt::format("made for {}: {} {} of memory, and {}, on which it runs, has {}", need.made_for,
                               need.what, to_text(need.bytes), there.where, to_text(*there.bytes)),
                   need.hint);
}

std::string machine_text(const Machine& machine) {
  if (machine.device.name.empty() || machine.device.name == machine.name) {
    return machine.name.empty() ? "another machine" : machine.name;
  }
  return machine.name + " with " + machine.device.name;
}

std::optional<Bytes> available_memory(const fs::path& root) {
  constexpr std::int64_t kibibyte = 1024;
  std::optional<std::int64_t> least = number_after(text_if_there(root / "proc/meminfo"), "MemAvailable:");
  if (least) *least *= kibibyte;
  std::istringstream groups(text_if_there(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const fs::path top = root / "sys/fs/cgroup";
    if (controllers.empty()) take_limits(least, top, group, version_2);
    if (controllers == "memory") take_limits(least, top / "memory", group, version_1);
  }
  if (!least) return std::nullopt;
  return Bytes{*least};
}

MemoryThere memory_of_host(const HostIdentity& host) {
  return {.where = fmt::format("this host ({})", host.name), .bytes = available_memory()};
}

Bytes memory_of_ranks(const std::vector<const Plan*>& plans, const std::vector<int>& ranks) {
  Bytes states;
  Bytes beside;
  for (const Plan* plan : plans) {
    const Schedule lowered = lowered_schedule(*plan);
    const ScheduleGraph graph = build_graph(lowered, plan->costs);
    const std::vector<RankMemory> memory = memory_over_time(graph, evaluate(graph), plan->costs, lowered);
    Bytes beside_of_plan;
    for (const int rank : ranks) {
      const int place = lane_of(plan->layout, rank).pipeline_rank;
      const RankMemory& of = memory.at(static_cast<std::size_t>(place));
      const Bytes own = of.parameter_bytes + of.gradient_bytes + of.optimizer_bytes;
      states += own + on_host(plan->costs.stages, plan->schedule, place).kept;
      beside_of_plan += of.peak_bytes - own;
    }
    beside = std::max(beside, beside_of_plan);
  }
  return states + beside;
}

Bytes states_of_ranks(const Plan& plan, const std::vector<int>& ranks) {
  const std::vector<int> versions = weight_versions_kept(plan.schedule);
  Bytes states;
  for (const int rank : ranks) {
    for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
      const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
      states += cost.parameter_bytes * versions[static_cast<std::size_t>(stage)] + cost.optimizer_bytes +
                (cost.host_moves.kept - cost.host_moves.down);
    }
  }
  return states;
}

}  // namespace plumb::exec
