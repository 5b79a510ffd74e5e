// Collectives of a rank whose compute is emulated: they move nothing and take their predicted time.
#pragma once

#include <span>

#include "exec/device/clock.hpp"
#include "exec/emulation/emulated_lane.hpp"
#include "exec/emulation/wire_times.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// The sums of gradients over data-parallel ranks follow one another, whether a rank waits for them or not. Each rank
// knows when its own would end if no other were late; where it waits for them it meets the others, so that all leave
// when the last one may: the same as if each sum had waited for all, as it does on a wire (both are the longest chain
// of what is ready and of the sums behind it).
class EmulatedWire {
 public:
  // Both must outlive this. `world` is of all ranks.
  EmulatedWire(const WireTimes& times, Transport& world) : times_(times), world_(world) {}

  [[nodiscard]] const WireTimes& times() const { return times_; }

  // Starts the sum of so many bytes, that are complete now: when it ends.
  [[nodiscard]] Clock::time_point start_reduction(Bytes gradients) {
    return lane_.start(Clock::now(), times_.reduction(gradients));
  }

  // Sleeps until then: throws what polling the transport throws.
  void wait(Clock::time_point end) const;

  // Sleeps for so long, and until all ranks of `group` (ascending, this one among them) have: throws as
  // Transport::all_reduce. What they tell each other for that is no payload, though received.
  void take(Seconds time, std::span<const int> group, Clock::time_point deadline) const;
  void meet(std::span<const int> group, Clock::time_point deadline) const;

 private:
  const WireTimes& times_;
  Transport& world_;
  EmulatedLane lane_;  // of the ranks that share one copy of the states
};

}  // namespace plumb::exec
