// By which of its addresses the ranks on other hosts reach this host.
#pragma once

#include <string>
#include <vector>

namespace plumb::exec {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // IPv4, "10.0.0.2"
  bool operator==(const InterfaceAddress&) const = default;
};

// Of the interfaces that are up; none where the system does not say.
[[nodiscard]] std::vector<InterfaceAddress> own_addresses();

// The address (IPv4) that this host sends from to `host`, a name or an address; sends nothing. Empty: there is no way,
// or no such host.
[[nodiscard]] std::string address_towards(const std::string& host);

[[nodiscard]] bool is_loopback(const std::string& address);  // "127.…", "localhost"

// What to tell the other ranks: the way to the run's store is `towards`. Where that is a loopback address, as on a host
// whose own name stands for one (Debian's /etc/hosts), the only other address of `own`. Empty: nothing fits, or several
// do.
[[nodiscard]] std::string address_for_others(const std::string& towards, const std::vector<InterfaceAddress>& own);

}  // namespace plumb::exec
