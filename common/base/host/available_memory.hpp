// How much memory of this host processes can still have.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/units.hpp"

namespace plumb {

// MemAvailable of proc/meminfo, or less where the cgroup of this process or one above it has a limit (of both versions;
// pages of files that nobody uses count as free). None: there is no such file. `root` is where proc and sys/fs/cgroup
// stand.
[[nodiscard]] std::optional<Bytes> available_memory(const std::filesystem::path& root = "/");

}  // namespace plumb
