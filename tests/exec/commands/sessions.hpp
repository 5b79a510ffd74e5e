// The ranks of a session as threads, over transports of any kind.
#pragma once

#include <utility>
#include <vector>

#include "exec/commands/rank_work.hpp"
#include "exec/device/host_device.hpp"
#include "exec/launch/launch.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec::test {

// Ranks from `ranks_here` on are on another host, as far as they know.
inline SessionLogs train_session(const TransportKind& kind, const std::vector<PreparedPlan>& plans,
                                 const SessionOptions& options, int ranks_here = 1 << 20) {
  const int ranks = ranks_of(plans.front());
  RankWork work(plans, options);
  Watchdog watchdog(ranks, {.on_hang = [](int, const Position&, Seconds) {}, .on_stuck = [] {}});
  SessionLogs logs;
  run_on_threads(kind.make(ranks), [&](Transport& transport) {
    const auto device = make_host_device();
    HostIdentity host;
    if (transport.rank() >= ranks_here) host.clock += " of another host";
    SessionLogs mine = work.run(transport, *device, watchdog, host);
    if (transport.rank() == 0) logs = std::move(mine);
  });
  return logs;
}

inline SessionOptions checked_steps(const TransportKind& kind, int steps) {
  SessionOptions options;
  options.steps = steps;
  options.warm_up = 0;
  options.transport = kind.name;
  options.check = true;
  return options;
}

}  // namespace plumb::exec::test
