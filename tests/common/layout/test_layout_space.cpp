// The layouts of a space are all meshes of so many ranks, each placement once: counted by hand and by brute force.
#include "common/layout/layout_space.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "common/layout/tensor_grid.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// The machine-independent placement: the groups of every axis, as sets of ranks.
using Groups = std::vector<std::set<std::vector<int>>>;
Groups groups_of(const Layout& layout) {
  Groups groups;
  for (const MeshAxis axis : {MeshAxis::tensor, MeshAxis::data, MeshAxis::pipeline}) {
    std::set<std::vector<int>> of_axis;
    for (int rank = 0; rank < ranks(layout); ++rank) of_axis.insert(group(layout, rank, axis));
    groups.push_back(std::move(of_axis));
  }
  return groups;
}

}  // namespace

TEST_CASE("all degrees open: as many meshes as ordered triples of factors") {
  // Ordered triples with product ∏ p^e: ∏ (e+1)(e+2)/2. 2520 = 2³·3²·5·7, 64 = 2⁶, 7 prime.
  const std::map<int, std::size_t> triples = {{1, 1}, {7, 3}, {12, 18}, {64, 28}, {2520, 540}};
  for (const auto& [ranks_wanted, count] : triples) {
    const std::vector<Layout> layouts = layouts_of(LayoutSpace{.orders = {{Layout{}.order}}}, ranks_wanted);
    CHECK(layouts.size() == count);
    for (const Layout& layout : layouts) {
      CHECK(ranks(layout) == ranks_wanted);
      require_consistent(layout);
      CHECK(std::ranges::count(layouts, layout) == 1);
    }
  }
}

TEST_CASE("any order: every placement of the groups once, tensor innermost first") {
  for (const int ranks_wanted : {4, 8, 12, 30}) {
    CAPTURE(ranks_wanted);
    std::set<Groups> placements;  // brute force: all 120 orders of five axes
    for (const Layout& mesh : layouts_of(LayoutSpace{.orders = {{Layout{}.order}}}, ranks_wanted)) {
      Layout layout = mesh;
      std::ranges::sort(layout.order);
      do placements.insert(groups_of(layout));
      while (std::ranges::next_permutation(layout.order).found);
    }
    const std::vector<Layout> layouts = layouts_of(LayoutSpace{}, ranks_wanted);
    std::set<Groups> found;
    for (const Layout& layout : layouts) {
      require_consistent(layout);
      CHECK(found.insert(groups_of(layout)).second);
    }
    CHECK(found == placements);
  }
  const std::vector<Layout> layouts = layouts_of(LayoutSpace{.pipeline = {{2}}, .tensor = {{2}}, .data = {{2}}}, 8);
  REQUIRE(layouts.size() == 6);
  CHECK(layouts.front().order == Layout{}.order);
}

TEST_CASE("sequence parallelism is open only where there is a tensor group") {
  const LayoutSpace space{.sequence_parallel = {true, false}, .orders = {{Layout{}.order}}};
  const std::vector<Layout> layouts = layouts_of(space, 4);  // (t,p,d): 1·3 without, 2·2 + 1·... with tensor
  const auto with_tensor =
      std::ranges::count_if(layouts, [](const Layout& layout) { return layout.tensor.degree > 1; });
  CHECK(layouts.size() - static_cast<std::size_t>(with_tensor) == 3);  // p·d = 4
  CHECK(with_tensor == 2 * (2 + 1));                                   // p·d = 2, and 1
  for (const std::vector<bool>& allowed : {std::vector<bool>{true, false}, {false, true}, {true}}) {
    for (const Layout& layout : layouts_of(LayoutSpace{.sequence_parallel = allowed}, 4)) {
      CHECK((layout.tensor.degree > 1 || !layout.tensor.sequence_parallel));
    }
  }
}

TEST_CASE("asynchronous and reshard_after_forward are open where there is a choice") {
  const LayoutSpace space{.kinds = {TensorKind::three_d, TensorKind::one_d, TensorKind::two_d},
                          .sequence_parallel = {false, true},
                          .asynchronous = {true, false},
                          .reshard_after_forward = {false, true}};
  const TensorLayout cube{.degree = 64, .kind = TensorKind::three_d};
  TensorLayout again = cube;
  again.reshard_after_forward = true;
  CHECK(tensor_layouts_of(space, 64) ==
        std::vector<TensorLayout>{cube,
                                  again,
                                  {.degree = 64},
                                  {.degree = 64, .sequence_parallel = true, .asynchronous = true},
                                  {.degree = 64, .sequence_parallel = true},
                                  {.degree = 64, .kind = TensorKind::two_d, .asynchronous = true},
                                  {.degree = 64, .kind = TensorKind::two_d}});
  CHECK(tensor_layouts_of(space, 1) == std::vector<TensorLayout>{{}});
}

TEST_CASE("every grid of a degree appears once, for any kind and depth") {
  LayoutSpace space;
  space.kinds = {all_tensor_kinds.begin(), all_tensor_kinds.end()};
  space.depths.reset();
  space.sequence_parallel = {false, true};
  for (int degree = 2; degree <= 256; ++degree) {
    CAPTURE(degree);
    std::set<std::pair<TensorKind, int>> grids;  // by brute force over sides and depths
    for (int q = 2; q * q <= degree; ++q) {
      if (q * q == degree) grids.emplace(TensorKind::two_d, 1);
      if (q * q * q == degree) grids.emplace(TensorKind::three_d, 1);
      for (int depth = 2; depth * q * q <= degree; ++depth) {
        if (depth * q * q == degree) grids.emplace(TensorKind::two_and_half_d, depth);
      }
    }
    std::set<std::pair<TensorKind, int>> found;
    int one_d = 0;
    for (const TensorLayout& tensor : tensor_layouts_of(space, degree)) {
      CHECK(tensor.degree == degree);
      one_d += is_grid(tensor) ? 0 : 1;
      CHECK((!tensor.sequence_parallel || !is_grid(tensor)));
      if (is_grid(tensor) && find_grid(tensor)) CHECK(found.emplace(tensor.kind, tensor.depth).second);
    }
    CHECK(found == grids);
    CHECK(one_d == 2);
  }
  CHECK(tensor_layouts_of(space, 1) == std::vector<TensorLayout>{{}});
}

TEST_CASE("lists keep their order and leave out what does not multiply to the ranks") {
  const LayoutSpace space{.pipeline = {{8, 2, 3}}, .tensor = {{1, 2}}, .orders = {{Layout{}.order}}};
  std::vector<std::string> names;
  for (const Layout& layout : layouts_of(space, 16)) names.push_back(describe(layout));
  CHECK(names == std::vector<std::string>{"pp8·dp2", "pp2·dp8", "pp8·tp2", "pp2·tp2·dp4"});
  CHECK(layouts_of(LayoutSpace{.pipeline = {{3}}}, 16).empty());
  CHECK(layouts_of(LayoutSpace{}, 0).empty());
}
