// When a step's actions began and ended on an asynchronous device: moments taken while they are put on its streams,
// read as times once they have come.
#pragma once

#include <cstddef>
#include <vector>

#include "common/timeline/timeline.hpp"
#include "exec/device/device.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// A null moment: the action keeps the time that its event has.
struct ActionMoments {
  MomentPtr begin;
  MomentPtr end;
  MomentPtr waiting_since = {};  // of evictions: when the rank had nothing else to do
  MomentPtr beside_since = {};   // of sums beside compute: from when the first bucket could start
};

// Of one rank, by the index in its list.
class StepMoments {
 public:
  void begin_step(std::size_t actions);

  [[nodiscard]] ActionMoments& operator[](std::size_t index) { return all_[index]; }

  // A message that the transport put on a communicator's stream began and ended with its batch. What actions make of
  // themselves is theirs. Then all are to be awaited, also what had ended before.
  void take(const std::vector<Launched>& launched);

  // How many of the list's first actions have ended, all before them too. Never blocks. Throws RunError if work on the
  // device has failed.
  [[nodiscard]] std::size_t ended();

  // Precondition: all have ended; `events` stand by index, too. The moments are given back.
  void write_times(const Device& device, std::vector<Event>& events);

 private:
  std::vector<ActionMoments> all_;
  std::size_t ended_ = 0;
};

}  // namespace plumb::exec
