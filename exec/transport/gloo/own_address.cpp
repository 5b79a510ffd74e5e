#include "exec/transport/gloo/own_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <set>

namespace plumb::exec {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  const auto* internet = reinterpret_cast<const sockaddr_in*>(address);
  return ::inet_ntop(AF_INET, &internet->sin_addr, text.data(), text.size()) == nullptr ? "" : text.data();
}

}  // namespace

std::vector<InterfaceAddress> own_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<InterfaceAddress> own;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    own.push_back({.interface = entry->ifa_name, .address = text_of(entry->ifa_addr)});
  }
  return own;
}

// A datagram socket that is connected has a route, and has sent nothing.
std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  sockaddr_storage own = {};
  socklen_t length = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  const bool known =
      ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 && ::getsockname(socket, generic, &length) == 0;
  ::close(socket);
  return known ? text_of(generic) : "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "localhost"; }

std::string address_for_others(const std::string& towards, const std::vector<InterfaceAddress>& own) {
  if (!towards.empty() && !is_loopback(towards)) return towards;
  std::set<std::string> others;
  for (const InterfaceAddress& candidate : own) {
    if (!is_loopback(candidate.address)) others.insert(candidate.address);
  }
  return others.size() == 1 ? *others.begin() : "";
}

}  // namespace plumb::exec
