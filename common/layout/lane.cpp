#include "common/layout/lane.hpp"

namespace plumb {

Lane lane_of(const Layout& layout, int rank) {
  return {.ranks = group(layout, rank, MeshAxis::pipeline),
          .pipeline_rank = coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline))};
}

std::vector<Lane> lanes_of(const Layout& layout) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < ranks(layout); ++rank) {
    Lane lane = lane_of(layout, rank);
    if (lane.pipeline_rank == 0) lanes.push_back(std::move(lane));
  }
  return lanes;
}

int data_replica(const Layout& layout, int rank) {
  return coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::data));
}

}  // namespace plumb
