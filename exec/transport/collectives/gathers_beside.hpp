// Gathers of values that a group of ranks shares out, which go on beside the rank's own work.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// All-gathers as Collectives::all_gather makes them, and counted alike: received is all but the own part. But each rank
// sends its part to each when it starts, and hands nothing on: so that a gather goes on beside whatever ranks do then,
// and no rank waits for one that computes.
//
// Of one rank, on its thread, like its transport. All ranks of `group` (ascending, this one among them) start the same
// gathers in the same order, whatever else they make with each other meanwhile: they have a channel of their own.
class GathersBeside {
 public:
  // By position in the group, as Collectives has them.
  using PartList = std::vector<std::span<std::byte>>;

  // `transport`, whose Channel::gathers this uses, must outlive this.
  GathersBeside(Transport& transport, std::vector<int> group);

  // Of several values as one message: of each the own part is given, and those of others are written by `finish`. Until
  // then nobody else writes the values. Never waits. Throws as Transport::send.
  void start(std::vector<PartList> values);

  // Waits for the one that was started first of those that have not ended: precondition: there is one. Throws as
  // Collectives::all_gather, naming group and peer.
  void finish(Clock::time_point deadline);

  // When the last of the parts of others had come that `finish` has taken.
  [[nodiscard]] Clock::time_point last_arrival() const { return last_arrival_; }

  [[nodiscard]] bool idle() const { return gathers_.empty(); }

 private:
  Transport& transport_;
  std::vector<int> group_;
  PlaceInGroup place_;
  std::deque<std::vector<PartList>> gathers_;  // that have not ended
  Clock::time_point last_arrival_ = {};
};

}  // namespace plumb::exec
