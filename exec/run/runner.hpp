// Runs a rank's list of actions step by step and writes down when each began and ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

class Device;
class Watchdog;
class WireTimes;  // exec/emulation/wire_times.hpp

// Memory of a rank, as whoever tracks it sees it; empty functions: nobody does.
struct MemoryHooks {
  std::function<void(const std::byte* data, int to_rank)> moved;  // a received buffer belongs to this rank from now on
  std::function<void(int rank)> reset_peak;
  std::function<Bytes(int rank)> peak;
  std::function<Bytes(int rank)> held = {};                 // now
  std::function<Payload(std::size_t bytes)> allocate = {};  // that counts as the rank's of the calling thread
};

struct RunOptions {
  int steps = 1;
  std::int64_t first_step = 0;    // number of the first of them, for the stages' data
  int warm_up = 0;                // of the run's steps, from number 0: named so in errors
  double deadline_factor = 20;    // an action's deadline: this many times its predicted time …
  Seconds deadline_floor = {60};  // … but never less
  Watchdog* watchdog = nullptr;   // learns where the rank stands; may be null
  MemoryHooks memory = {};
  Device* device = nullptr;                // what the stages compute on; null: the host
  const RankLaunches* launches = nullptr;  // for transports that move messages on streams; null: none are planned
  const ReceiveArena* arena = nullptr;     // of this rank and list, on an asynchronous device; null: none is planned
  // On hosts: collectives take these times and move nothing, between stages whose gradients are not touched (pipelines'
  // messages go as ever). Null: they are made.
  const WireTimes* emulated_wire = nullptr;
};

// Runs the list of the pipeline rank that `transport.rank()` has in the plan's layout, for every step. `stages` by
// stage_slot. On an asynchronous device the actions are put on its streams one after the other without waiting for
// them; only when the step is complete does the rank wait until all has ended, and read when each action began and
// ended. An error names rank and action, tells the other ranks to stop and is rethrown as RunError.
[[nodiscard]] RankLog run_rank(const Plan& plan, const Schedule& lowered, Transport& transport,
                               const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options);

}  // namespace plumb::exec
