#include "exec/host/host_identity.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb::exec {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "?";
}

std::string host_id() {
  try {
    return read_file("/proc/sys/kernel/random/boot_id");
  } catch (const InputError&) {
    return "the host named " + host_name() + "\n";  // two must not seem to be one
  }
}

std::string clock_id() {
  std::error_code none;
  return host_id() + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

std::string sockets_id() {
  std::error_code none;
  return clock_id() + std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

}  // namespace plumb::exec
