// What a rank's host keeps for it, and what moves between the two: once a step where optimizer states or weights stand
// there, in each F and each I or B where activations do, before each gathering where weights do.
#pragma once

#include <vector>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// Of a block, or the sums of a stage's blocks. What moves is STEP's: where the host updates, gradients of what this
// rank updates go down, and the updated weights up unless they stand there; where the device updates weights that
// stand on the host, those that have no master copy here come up, and all that are updated go down.
struct HostMoves {
  Bytes kept = {};  // states, and the buffer of gradients, in which updated narrower weights then go up; weights
  Bytes down = {};
  Bytes up = {};
  Seconds copying_down = {};
  Seconds updating = {};  // of the host
  Seconds copying_up = {};
  bool operator==(const HostMoves&) const = default;
};
void operator+=(HostMoves& sum, const HostMoves& moves);

// By how much actions take longer, beside what they wait for others' weights.
struct HostWaits {
  Seconds forward = {};
  Seconds input_gradient = {};
  Seconds backward = {};
  bool operator==(const HostWaits&) const = default;
};
void operator+=(HostWaits& sum, const HostWaits& waits);

// What F of a block keeps until I or B, if it stands on the host in between. The device has it while the block works,
// and while it is on its way: down beside the next block's F, up beside the block behind in the backward's order (two
// blocks' worth: double buffered), as save_on_cpu with a stream of its own and Megatron-LM's cpu_offloading do.
struct ActivationMoves {
  Bytes kept = {};       // of one microbatch
  Seconds copying = {};  // each way, hidden or not
  // Of a block: copies go beside its neighbours' computing, as far as that takes; else they are in its times.
  bool beside = false;
  HostWaits waits = {};  // in the times of the actions
  bool operator==(const ActivationMoves&) const = default;
};
void operator+=(ActivationMoves& sum, const ActivationMoves& moves);

// The own parts of weights that stand on the host: they come up before each gathering (bandwidth-centric partitioning,
// arXiv 2104.07857, section 6.1: each of n ranks brings 1/n of a block over a port of its own), each into its place
// among the whole, as FSDP2's CPUOffloadPolicy has its copy before the all-gather.
struct ParameterMoves {
  Bytes up = {};         // of one gathering
  Seconds copying = {};  // of these
  bool beside = false;   // the gathering's first part, wherever that goes; else in the times of the actions
  bool operator==(const ParameterMoves&) const = default;
};
void operator+=(ParameterMoves& sum, const ParameterMoves& moves);

// Over a device's port to its host, alone: latency + bytes / bandwidth. No bytes take no time.
[[nodiscard]] Seconds host_copy_time(const HostProfile& host, Bytes bytes);

// Of one piece in STEP: it is copied, updated, copied back.
struct StepPiece {
  Seconds before = {};
  Seconds updating = {};
  Seconds behind = {};
};
[[nodiscard]] StepPiece updated_on_host(const HostMoves& moves);
[[nodiscard]] StepPiece updated_on_device(const HostMoves& moves, Seconds updating);

// How long the pieces of a stage take in their order. Where copies and the update go beside each other (`overlapped`:
// a device copies by itself, each way over its own half of the port) each piece is copied when the one before has been,
// is updated when it is there and the one before is updated, and is copied back likewise: a flow shop of three machines
// (Johnson 1954), whose end is the recurrence. ZeRO-Offload (arXiv 2101.06840, section 4.1) tiles its update so. Else,
// as on a host that copies with the core that updates, the sum of all.
[[nodiscard]] Seconds offloaded_step_time(const std::vector<StepPiece>& pieces, bool overlapped);

}  // namespace plumb
