#include <sched.h>

#include <thread>

#include "exec/transport/gloo/gloo.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec {
namespace {

// Each rank on a thread of its own while they connect: they wait for each other. `sockets`: as GlooOptions has it.
std::vector<std::unique_ptr<Transport>> make_gloo_transports(int ranks, const std::string& sockets) {
  const auto store = RunStore::host(0);
  std::vector<std::unique_ptr<Transport>> transports(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      // No thread that Gloo starts here takes another's place on waking: its loop spins while that one has a lock.
      const sched_param none{};
      (void)::sched_setscheduler(0, SCHED_BATCH, &none);
      const GlooOptions options{.rank = rank, .size = ranks, .port = store->port(), .sockets = sockets};
      transports[static_cast<std::size_t>(rank)] =
          make_gloo_transport(options, RunStore::join("127.0.0.1", store->port(), {20}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  // It must live as long as any rank does: until the end of the test program.
  static std::vector<std::shared_ptr<RunStore>> stores;
  stores.push_back(store);
  return transports;
}

}  // namespace

std::vector<TransportKind> transport_kinds() {
  return {{"local", make_local_transports},
          {"gloo", [](int ranks) { return make_gloo_transports(ranks, sockets_id()); }},
          {"gloo between hosts", [](int ranks) { return make_gloo_transports(ranks, ""); }}};
}

}  // namespace plumb::exec
