#include "common/base/host/available_memory.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb {
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

}  // namespace plumb
