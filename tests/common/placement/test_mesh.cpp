// Groups over sets of axes agree with those of the layout, and with a definition by coordinates.
#include "common/placement/mesh.hpp"

#include <random>
#include <set>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

Mesh mesh_like(std::vector<int> sizes) {
  Mesh mesh;
  for (std::size_t i = 0; i < sizes.size(); ++i) mesh.axes.push_back({"axis" + std::to_string(i), sizes[i]});
  return mesh;
}

}  // namespace

TEST_CASE("a mesh's groups of one axis are the layout's", "[placement]") {
  Layout layout;
  layout.tensor.degree = 2;
  layout.context = 3;
  layout.expert = 2;
  layout.data.degree = 2;
  layout.pipeline = 3;
  std::sort(layout.order.begin(), layout.order.end());
  do {
    const Mesh mesh = mesh_of(layout);
    CHECK(ranks(mesh) == ranks(layout));
    for (const MeshAxis axis :
         {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data, MeshAxis::pipeline}) {
      for (int rank = 0; rank < ranks(mesh); ++rank) {
        CHECK(group(mesh, rank, set_of(axis_of(mesh, axis_name(axis)))) == group(layout, rank, axis));
      }
    }
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
}

TEST_CASE("a group over a set of axes has the ranks that agree on all others", "[placement]") {
  std::mt19937 random(1);
  for (int round = 0; round < plumb::testing::cases(200); ++round) {
    std::vector<int> sizes;
    for (int i = 0; i < 4; ++i) sizes.push_back(1 + static_cast<int>(random() % 3));
    const Mesh mesh = mesh_like(sizes);
    const Axes over{static_cast<std::uint16_t>(random() % 16)};
    const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks(mesh)));
    std::vector<int> expected;
    for (int other = 0; other < ranks(mesh); ++other) {
      bool same = true;
      for (std::uint8_t i = 0; i < 4; ++i) {
        if (!contains(over, {i})) same = same && coordinate(mesh, rank, {i}) == coordinate(mesh, other, {i});
      }
      if (same) expected.push_back(other);
    }
    CHECK(group(mesh, rank, over) == expected);
    CHECK(static_cast<int>(expected.size()) == size(mesh, over));
  }
}

TEST_CASE("grids and copies must make up their degree", "[placement]") {
  Layout layout;
  layout.tensor = {.degree = 8, .kind = TensorKind::two_d};
  CHECK_THROWS_WITH(mesh_of(layout), ContainsSubstring("a 2d tensor layout needs q² ranks, not 8"));
  layout.tensor = {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2};
  CHECK(size(mesh_of(layout), axis_of(mesh_of(layout), "tensor.row")) == 2);
  layout.tensor = {.degree = 12, .kind = TensorKind::two_and_half_d, .depth = 2};
  CHECK_THROWS_WITH(mesh_of(layout), ContainsSubstring("2·q²"));
  layout.tensor = {.degree = 27, .kind = TensorKind::three_d};
  CHECK(size(mesh_of(layout), axis_of(mesh_of(layout), "tensor.depth")) == 3);
  layout.tensor = {.degree = 9, .kind = TensorKind::three_d};
  CHECK_THROWS_WITH(mesh_of(layout), ContainsSubstring("a 3d tensor layout needs q³ ranks, not 9"));
  layout.tensor = {};
  layout.data = {.degree = 8, .sharding = Sharding::hsdp, .shard = 4, .replicate = 3};
  CHECK_THROWS_WITH(mesh_of(layout), ContainsSubstring("shard × replicate"));
}
