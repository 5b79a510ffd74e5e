#include "common/layout/lane.hpp"

#include <algorithm>
#include <set>

#include "tests/catch.hpp"

using namespace plumb;

// Against the definition: ranks that differ from it on the pipeline's axis alone, whatever the nesting.
TEST_CASE("a lane holds the ranks that share all coordinates but the pipeline's, in the pipeline's order") {
  std::array<MeshAxis, 5> order = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data,
                                   MeshAxis::pipeline};
  constexpr auto pipeline = static_cast<std::size_t>(MeshAxis::pipeline);
  constexpr auto data = static_cast<std::size_t>(MeshAxis::data);
  std::ranges::sort(order);
  do {
    Layout layout{.order = order, .pipeline = 3, .tensor = {.degree = 2}, .data = {.degree = 2}, .expert = 2};
    std::multiset<int> held;
    for (const Lane& lane : lanes_of(layout)) held.insert(lane.ranks.begin(), lane.ranks.end());
    REQUIRE(held.size() == 24);
    REQUIRE(std::set<int>(held.begin(), held.end()).size() == 24);
    for (int rank = 0; rank < ranks(layout); ++rank) {
      const Lane lane = lane_of(layout, rank);
      REQUIRE(lane.ranks.size() == 3);
      REQUIRE(std::ranges::is_sorted(lane.ranks));
      REQUIRE(lane.ranks[static_cast<std::size_t>(lane.pipeline_rank)] == rank);
      MeshCoordinates own = coordinates(layout, rank);
      REQUIRE(data_replica(layout, rank) == own[data]);
      for (std::size_t place = 0; place < 3; ++place) {
        own[pipeline] = static_cast<int>(place);
        REQUIRE(coordinates(layout, lane.ranks[place]) == own);
      }
    }
  } while (std::ranges::next_permutation(order).found);
}
