// In which order the messages of a schedule are put on the streams of communicators that know neither tags nor queues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/schedule/schedule.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {

// One end of a message, or a rank's part in a sum.
struct LaunchOperation {
  Action action;           // SEND_F, RECV_B, EVICT, REDUCE_TIED …: as in the rank's list
  std::int32_t index = 0;  // where it stands there
  std::int32_t peer = 0;   // the pipeline's other rank
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
  bool operator==(const LaunchBatch&) const = default;
};

// In the order of launch, all communicators together.
using RankLaunches = std::vector<LaunchBatch>;

struct LaunchPlan {
  std::vector<RankLaunches> ranks;  // by rank of the pipeline
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

// How a device works off what is launched.
enum class StreamOrder : std::uint8_t {
  concurrent,  // each stream on its own
  serial,      // all of a rank's work in the order of launch (CUDA_DEVICE_MAX_CONNECTIONS=1 in the worst case)
};

// What goes wrong with a plan under NCCL's rules, in words, one line each; empty: nothing can. The rules: operations on
// a communicator follow each other; the k-th send to a peer pairs with the peer's k-th receive, whatever they are meant
// to be; a send may wait for its receive to start; a batch ends as one; compute waits for what it received, a send for
// what it sends. Reported: operations missing, twice or in the wrong place of the host's order, pairs whose ends do not
// belong together, and circles of waits, batch by batch. Brute force, independent of how plans are made.
[[nodiscard]] std::vector<std::string> check_launches(const Schedule& lowered, const LaunchPlan& plan,
                                                      StreamOrder order);

}  // namespace plumb::exec
