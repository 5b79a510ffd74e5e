// Which host a process runs on, and which clock it reads there.
#pragma once

#include <string>

namespace plumb::exec {

// Its name, and what is the same for all processes there and for no other.
[[nodiscard]] std::string host_name();
[[nodiscard]] std::string host_id();

// The same for all processes that read one exec::Clock: those of a host, unless a container has a time of its own
// (time_namespaces(7)).
[[nodiscard]] std::string clock_id();

// The same for all processes that reach each other's sockets of the host by abstract names, and read one exec::Clock:
// those of a host, unless a container has a network of its own (network_namespaces(7)).
[[nodiscard]] std::string sockets_id();

// Tests put others in its place.
struct HostIdentity {
  std::string name = host_name();
  std::string id = host_id();
  std::string clock = clock_id();
};

}  // namespace plumb::exec
