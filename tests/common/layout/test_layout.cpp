// The mesh is a bijection between ranks and coordinates, and groups partition the ranks.
#include "common/layout/layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::array<MeshAxis, 5> axes = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data,
                                          MeshAxis::pipeline};

Layout layout_of(int pipeline, int tensor, int data, int context, int expert) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.tensor.degree = tensor;
  layout.data.degree = data;
  layout.context = context;
  layout.expert = expert;
  return layout;
}

// The layout with its axes in all 120 orders.
std::vector<Layout> every_order(Layout layout) {
  std::sort(layout.order.begin(), layout.order.end());
  std::vector<Layout> layouts;
  do {
    layouts.push_back(layout);
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
  return layouts;
}

std::size_t index(MeshAxis axis) { return static_cast<std::size_t>(axis); }

}  // namespace

TEST_CASE("ranks and coordinates are one to one in every order of the axes") {
  const auto layouts = every_order(layout_of(4, 3, 2, 5, 1));
  REQUIRE(layouts.size() == 120);
  for (const Layout& layout : layouts) {
    REQUIRE(ranks(layout) == 120);
    std::set<MeshCoordinates> seen;
    for (int rank = 0; rank < ranks(layout); ++rank) {
      const MeshCoordinates position = coordinates(layout, rank);
      for (const MeshAxis axis : axes) {
        REQUIRE(position[index(axis)] >= 0);
        REQUIRE(position[index(axis)] < degree(layout, axis));
      }
      REQUIRE(rank_at(layout, position) == rank);
      seen.insert(position);
    }
    REQUIRE(seen.size() == 120);
  }
}

TEST_CASE("the groups of an axis partition the ranks, each in the order of the axis") {
  for (const Layout& layout : every_order(layout_of(4, 3, 2, 5, 1))) {
    for (const MeshAxis axis : axes) {
      std::set<std::vector<int>> groups;
      for (int rank = 0; rank < ranks(layout); ++rank) {
        const std::vector<int> members = group(layout, rank, axis);
        REQUIRE(members.size() == static_cast<std::size_t>(degree(layout, axis)));
        REQUIRE(members.at(static_cast<std::size_t>(coordinates(layout, rank)[index(axis)])) == rank);
        groups.insert(members);
      }
      std::vector<int> all;
      for (const auto& members : groups) all.insert(all.end(), members.begin(), members.end());
      std::sort(all.begin(), all.end());
      std::vector<int> expected(static_cast<std::size_t>(ranks(layout)));
      std::iota(expected.begin(), expected.end(), 0);
      REQUIRE(all == expected);
    }
  }
}

TEST_CASE("the innermost axis has neighbouring ranks") {
  const Layout layout = layout_of(2, 4, 2, 1, 1);
  CHECK(group(layout, 5, MeshAxis::tensor) == std::vector<int>{4, 5, 6, 7});
  CHECK(group(layout, 5, MeshAxis::data) == std::vector<int>{1, 5});
  CHECK(group(layout, 5, MeshAxis::pipeline) == std::vector<int>{5, 13});
}

TEST_CASE("a layout is named by its degrees above one") {
  CHECK(describe(layout_of(8, 4, 2, 1, 1)) == "pp8·tp4·dp2");
  CHECK(describe(layout_of(1, 1, 1, 2, 3)) == "cp2·ep3");
  CHECK(describe(Layout{}) == "single");
}

TEST_CASE("an inconsistent layout is refused") {
  Layout twice;
  twice.order = {MeshAxis::tensor, MeshAxis::tensor, MeshAxis::expert, MeshAxis::data, MeshAxis::pipeline};
  CHECK_THROWS_WITH(require_consistent(twice), ContainsSubstring("'tensor' exactly once"));
  CHECK_THROWS_AS(require_consistent(layout_of(0, 1, 1, 1, 1)), InputError);
  CHECK_THROWS_WITH(require_consistent(layout_of(65536, 65536, 65536, 1, 1)), ContainsSubstring("too many ranks"));
  CHECK_NOTHROW(require_consistent(layout_of(8, 4, 2, 1, 1)));
}

TEST_CASE("the sequences of a batch are divided over the data and the expert axis") {
  CHECK(batch_shards(layout_of(4, 8, 1, 2, 1)) == 1);
  CHECK(batch_shards(layout_of(4, 8, 3, 2, 5)) == 15);
}

TEST_CASE("a product of degrees is exact beyond an int, never wraps, and is never taken for a number of ranks") {
  constexpr int much = 1 << 20;
  CHECK(rank_product(layout_of(8, 4, 2, 1, 3)) == 192);
  CHECK(rank_product(layout_of(much, much, much, 1, 1)) == std::int64_t{1} << 60);
  CHECK(rank_product(layout_of(much, much, much, much, much)) == std::numeric_limits<std::int64_t>::max());
  CHECK_THROWS_AS(ranks(layout_of(65536, 65536, 1, 1, 1)), InputError);
  CHECK_THROWS_AS(require_consistent(layout_of(much, much, much, much, much)), InputError);
  Layout by_stage = layout_of(2, much, much, 1, 1);
  by_stage.stage_data = {much, 1};
  CHECK_THROWS_AS(ranks(by_stage), InputError);
  CHECK_THROWS_AS(stage_width(by_stage, 0), InputError);
}
