#include "exec/emulation/emulated_wire.hpp"

#include <vector>

#include "exec/emulation/polled_sleep.hpp"

namespace plumb::exec {

void EmulatedWire::wait(Clock::time_point end) const { sleep_until(end, &world_); }

void EmulatedWire::take(Seconds time, std::span<const int> group, Clock::time_point deadline) const {
  wait(after(Clock::now(), time));
  meet(group, deadline);
}

// Of a sum of one value for each of them every rank waits for every other.
void EmulatedWire::meet(std::span<const int> group, Clock::time_point deadline) const {
  std::vector<float> none(group.size());
  world_.all_reduce(group, none, deadline);
}

}  // namespace plumb::exec
