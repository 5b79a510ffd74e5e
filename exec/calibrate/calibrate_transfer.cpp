#include "exec/calibrate/calibrate_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/quantile.hpp"
#include "exec/calibrate/calibration_rounds.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/gloo/gloo.hpp"
#include "exec/transport/local/local.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t small_message = 64;
constexpr std::size_t large_message = std::size_t{4} << 20U;
constexpr int round_trips = 200;
constexpr auto patience = std::chrono::seconds(30);

// A pointer that is handed over costs the same at every size: what is measured above this is noise.
constexpr double highest_bandwidth = 1e12;  // bytes per second

Payload message(std::size_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  return {.owner = buffer, .data = buffer->data(), .size = bytes};
}

// One way of a message that goes there and back, on rank 0; the other ranks return zero.
Seconds one_way(Transport& transport, std::size_t bytes) {
  const int peer = 1 - transport.rank();
  std::vector<Seconds> halves;
  transport.expect(peer, Channel::forward, bytes, round_trips);
  const Payload payload = message(bytes);
  for (int trip = 0; trip < round_trips; ++trip) {
    const Clock::time_point start = Clock::now();
    if (transport.rank() == 0) {
      transport.send(peer, Channel::forward, payload);
      (void)transport.receive(peer, Channel::forward, start + patience);
      halves.push_back({std::chrono::duration<double>(Clock::now() - start).count() / 2});
    } else {
      (void)transport.receive(peer, Channel::forward, start + patience);
      transport.send(peer, Channel::forward, payload);
    }
  }
  return halves.empty() ? Seconds{} : median(halves);
}

// Both ranks as threads of this process, their messages over the loopback interface.
std::vector<std::unique_ptr<Transport>> make_gloo_pair() {
  const std::shared_ptr<RunStore> host = RunStore::host(0);
  const auto make = [port = host->port()](int rank, std::shared_ptr<RunStore> store) {
    GlooOptions options;
    options.rank = rank;
    options.size = 2;
    options.port = port;
    return make_gloo_transport(options, std::move(store));
  };
  // Each waits for the other.
  auto second = std::async(std::launch::async, [&] {
    return make(1, RunStore::join("127.0.0.1", host->port(), Seconds{std::chrono::duration<double>(patience).count()}));
  });
  std::vector<std::unique_ptr<Transport>> pair;
  pair.push_back(make(0, host));
  pair.push_back(second.get());
  return pair;
}

}  // namespace

TransferCost measure_transfer(const std::string& transport) {
  const std::vector<std::string> known = {"local", "gloo"};
  if (std::find(known.begin(), known.end(), transport) == known.end()) {
    throw InputError("--transport", "cannot calibrate '" + transport + "'", did_you_mean(transport, known));
  }
  Seconds small;
  Seconds large;
  const auto transports = transport == "gloo" ? make_gloo_pair() : make_local_transports(2);
  run_on_threads(transports, [&](Transport& rank) {
    const Seconds of_small = one_way(rank, small_message);
    const Seconds of_large = one_way(rank, large_message);
    if (rank.rank() == 0) {
      small = of_small;
      large = of_large;
    }
    rank.barrier(Clock::now() + patience);
  });
  const double extra = std::max((large - small).value, static_cast<double>(large_message) / highest_bandwidth);
  return {.latency = small, .bandwidth = {static_cast<double>(large_message) / extra}};
}

}  // namespace plumb::exec
