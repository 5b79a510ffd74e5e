// Ranks as processes that talk through Gloo (c10d's ProcessGroupGloo) over TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "exec/host/host_identity.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // where the run's store listens
  int port = 0;
  int attempt = 0;            // at the run: what others have left in the store is not seen
  Seconds start_timeout{60};  // for all ranks to come
  Seconds silence_limit{5};   // without a sign of life a peer counts as hung
  // Ranks that have the same one pass small messages by links of their host (exec/transport/host_links.hpp); empty:
  // none do.
  std::string sockets = sockets_id();
  std::function<Payload(std::size_t bytes)> allocate = {};  // buffers of receives; empty: plain memory
  // Buffers of parcels, on the transport's own threads: nobody knows before how large they are. Empty: plain memory.
  std::function<Payload(std::size_t bytes)> allocate_part = {};
  std::function<std::string()> doing = {};  // goes out with every sign of life
  // What a peer was doing, in words, from what its `doing` said; empty: as it is.
  std::function<std::string(int rank, const std::string& doing)> describe = {};
};

// Waits until all ranks are connected. The address decides the network interface: a loopback address stays on this
// host; else GLOO_SOCKET_IFNAME, if set, names it, or it is the one on the way to that address
// (exec/transport/gloo/own_address.hpp).
[[nodiscard]] std::unique_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                                             std::shared_ptr<RunStore> store);

}  // namespace plumb::exec
