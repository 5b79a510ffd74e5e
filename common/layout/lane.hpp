// The pipeline that a rank of a layout works in.
#pragma once

#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

// The ranks that share a rank's coordinates on all axes but the pipeline. Schedules are lists for the ranks of a
// pipeline: one of them serves every lane.
struct Lane {
  std::vector<int> ranks = {};  // of the layout, by pipeline rank: ascending
  int pipeline_rank = 0;        // of the rank whose lane it is
  bool operator==(const Lane&) const = default;
};

// `rank` is one of the layout's. Of layouts without data degrees by stage, in which some lanes end early.
[[nodiscard]] Lane lane_of(const Layout& layout, int rank);

// All lanes, in the order of their first ranks.
[[nodiscard]] std::vector<Lane> lanes_of(const Layout& layout);

// Which share of the batch a rank trains on, from 0.
[[nodiscard]] int data_replica(const Layout& layout, int rank);

}  // namespace plumb
