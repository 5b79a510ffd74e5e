// In which order the messages of a schedule are put on the streams of communicators that know neither tags nor queues.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/schedule/schedule.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {

struct GroupCall;  // exec/transport/launch_plan/group_calls.hpp

// One end of a message, or a rank's part in a sum.
struct LaunchOperation {
  Action action;           // SEND_F, RECV_B, EVICT, REDUCE_TIED …: as in the rank's list
  std::int32_t index = 0;  // where it stands there
  std::int32_t peer = 0;   // the other rank: of the pipeline, and of the run in what one of its ranks launches
  bool sends = false;      // of a sum: false
  bool operator==(const LaunchOperation&) const = default;
};

// What goes to a communicator's stream as one (ncclGroupStart … ncclGroupEnd): all operations start when all sends are
// ready, and end together.
struct LaunchBatch {
  CommunicatorUse use = CommunicatorUse::down;
  std::vector<LaunchOperation> operations;  // those with one peer in the order in which they pair up
  // The host launches it before the action at this index of the rank's list, after that of all earlier batches: all
  // that it sends has been computed (that is: launched) by then, and nothing before it needs what it receives. What
  // LOAD brings back has room, and so is received, at its own index.
  std::int32_t place = 0;
  // It does not start on the device before the compute action at this index has: a receive that spins keeps
  // multiprocessors from computing. -1: it may start at once.
  std::int32_t not_before = -1;
  // Of a group's communicator: what the action at `place`, the one operation, makes of itself. Else null.
  std::shared_ptr<const GroupCall> call = {};
  bool operator==(const LaunchBatch&) const = default;
};

// In the order of launch, all communicators together.
using RankLaunches = std::vector<LaunchBatch>;

struct LaunchPlan {
  std::vector<RankLaunches> ranks;  // by rank of the pipeline, or of the run
  bool operator==(const LaunchPlan&) const = default;
};

// One total order of all messages, the same on every rank: that in which they start in the graph's evaluation with
// these costs, ties in topological order. It extends the schedule's own order (a message that depends on another starts
// later), so ranks that put their operations on their streams in it never wait in a circle, with any number of
// communicators, even if a device worked off all its streams as one: the earliest message that is not done has all it
// needs. Messages of one communicator that start in the same nanosecond go as one batch where all compute takes time,
// so that both directions of a link are used at once: they cannot depend on each other. Pure; times are rounded to
// nanoseconds, so all ranks make the same plan.
// Throws InputError when `lowered` is not lowered, has a cycle, or pairs messages across their order.
[[nodiscard]] LaunchPlan plan_launches(const Schedule& lowered, const PipelineCosts& costs);

}  // namespace plumb::exec
