// What a host says of its memory.
#include "common/base/host/available_memory.hpp"

#include <unistd.h>

#include "common/base/files.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("plumb-memory-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

void write(const Folder& folder, const std::string& file, const std::string& text) {
  std::filesystem::create_directories((folder.path / file).parent_path());
  write_file(folder.path / file, text);
}

}  // namespace

TEST_CASE("memory that is there: MemAvailable, or what a cgroup of either version or one above it leaves") {
  const Folder folder;
  CHECK_FALSE(available_memory(folder.path));
  write(folder, "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8192 kB\n");
  CHECK(available_memory(folder.path) == Bytes{8 * mebibyte});
  write(folder, "proc/self/cgroup", "4:memory:/job/step\n0::/unit\n");
  CHECK(available_memory(folder.path) == Bytes{8 * mebibyte});
  write(folder, "sys/fs/cgroup/unit/memory.max", "max\n");
  write(folder, "sys/fs/cgroup/unit/memory.current", "4096\n");
  CHECK(available_memory(folder.path) == Bytes{8 * mebibyte});
  write(folder, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(6 * mebibyte));
  write(folder, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(2 * mebibyte));
  CHECK(available_memory(folder.path) == Bytes{4 * mebibyte});
  write(folder, "sys/fs/cgroup/memory/job/memory.stat", "cache 5\ntotal_inactive_file 1048576\n");
  CHECK(available_memory(folder.path) == Bytes{5 * mebibyte});
  write(folder, "sys/fs/cgroup/unit/memory.max", std::to_string(3 * mebibyte));
  CHECK(available_memory(folder.path) == Bytes{3 * mebibyte - 4096});
}
