#include "exec/transport/gloo/own_address.hpp"

#include <algorithm>

#include "tests/catch.hpp"

using namespace plumb::exec;

TEST_CASE("other ranks are told the address on the way to the store, or the only one that is none of loopback's") {
  const InterfaceAddress loopback{"lo", "127.0.0.1"};
  const InterfaceAddress ethernet{"eth0", "10.0.0.2"};
  const InterfaceAddress bridge{"docker0", "172.17.0.1"};
  CHECK(address_for_others("10.0.0.2", {loopback, bridge, ethernet}) == "10.0.0.2");
  // Rank 0's host, whose own name stands for 127.0.1.1 in its /etc/hosts.
  CHECK(address_for_others("127.0.1.1", {loopback, ethernet}) == "10.0.0.2");
  CHECK(address_for_others("127.0.1.1", {loopback, ethernet, {"eth0:1", "10.0.0.2"}}) == "10.0.0.2");
  CHECK(address_for_others("127.0.1.1", {loopback, ethernet, bridge}).empty());
  CHECK(address_for_others("", {loopback}).empty());
  CHECK(address_for_others("", {}).empty());
}

TEST_CASE("the system knows its own addresses and sends from one of them") {
  CHECK(address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(address_towards("no-such-host.invalid").empty());
  const std::vector<InterfaceAddress> own = own_addresses();
  CHECK(std::ranges::any_of(own, [](const InterfaceAddress& entry) { return entry.address == "127.0.0.1"; }));
  for (const InterfaceAddress& entry : own) CHECK(address_towards(entry.address) == entry.address);
  CHECK(is_loopback("localhost"));
  CHECK_FALSE(is_loopback("10.127.0.1"));
}
