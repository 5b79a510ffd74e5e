// A connection to c10d's store that is made in time or not at all.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/base/units.hpp"

namespace plumb::exec {

// As all of ours are; the program's log then says nothing of what we get as exceptions.
[[nodiscard]] c10d::TCPStoreOptions store_options(int port, bool server);

// Throws RunError with address and port where nobody listens within `timeout`, or something does that does not answer
// as a store.
[[nodiscard]] c10::intrusive_ptr<c10d::TCPStore> connect_store(const std::string& address, int port, Seconds timeout);

}  // namespace plumb::exec
