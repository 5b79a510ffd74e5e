// How far the times of a graph's nodes may be off where they lie between ranks whose clocks differ. Internal to the
// diff.
#pragma once

#include <cmath>
#include <vector>

#include "common/graph/schedule_graph.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Per node; 0 where one clock gave both moments: an action of one rank, a pause between two of them. A transfer begins
// on its sender's clock and ends on its receiver's; a collective of two ranks and an eviction may take either end from
// either.
struct NodeUncertainty {
  std::vector<Seconds> durations;
  std::vector<Seconds> gaps;  // as MeasuredDurations has them
};

[[nodiscard]] NodeUncertainty node_uncertainty(const ScheduleGraph& graph, const Timeline& predicted,
                                               const Timeline& measured);

// Whether a difference may be that of the clocks alone; never where one clock gave all times (an uncertainty of 0).
[[nodiscard]] inline bool may_be_of_clocks(Seconds difference, Seconds uncertainty) {
  return uncertainty > Seconds{} && std::abs(difference.value) <= uncertainty.value;
}

}  // namespace plumb
