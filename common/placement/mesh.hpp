// The mesh of ranks: named axes that are not divided further. Groups of ranks are formed over sets of axes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

// Place of an axis in its mesh, 0 the innermost.
struct Axis {
  std::uint8_t index = 0;
  auto operator<=>(const Axis&) const = default;
};

// A set of axes of one mesh.
struct Axes {
  std::uint16_t bits = 0;
  bool operator==(const Axes&) const = default;
};
[[nodiscard]] constexpr Axes set_of(Axis axis) { return {static_cast<std::uint16_t>(1U << axis.index)}; }
[[nodiscard]] Axes set_of(const std::vector<Axis>& axes);
[[nodiscard]] constexpr bool contains(Axes set, Axis axis) { return (set.bits & set_of(axis).bits) != 0; }
[[nodiscard]] constexpr bool is_empty(Axes set) { return set.bits == 0; }
[[nodiscard]] constexpr Axes operator|(Axes a, Axes b) { return {static_cast<std::uint16_t>(a.bits | b.bits)}; }
[[nodiscard]] constexpr Axes operator&(Axes a, Axes b) { return {static_cast<std::uint16_t>(a.bits & b.bits)}; }
[[nodiscard]] constexpr Axes without(Axes a, Axes b) { return {static_cast<std::uint16_t>(a.bits & ~b.bits)}; }

struct Mesh {
  struct Entry {
    std::string name;
    int size = 1;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> axes;  // innermost first; at most 16
  bool operator==(const Mesh&) const = default;
};

// The axes of a layout, in its order: "tensor" of the 1d layout, "tensor.column" (innermost), "tensor.row" and
// "tensor.depth" of the 2d to 3d ones, "context", "expert", "data" or HSDP's "shard" and "replicate" or
// ZeRO++'s "inside" and "across", "pipeline".
// Throws InputError (where = "layout.tensor.degree" or "layout.data") where a grid or HSDP's copies do not make up
// their degree: 2d q·q, 2.5d depth·q·q, 3d q·q·q. Not for data degrees by stage.
[[nodiscard]] Mesh mesh_of(const Layout& layout);

// Where the ranks of the 1d layout are `copies` times as many as key-value heads: "tensor" in two, "tensor.copy"
// (innermost), along which neighbours have the same head, and "tensor.kv". With one copy the mesh as it is.
[[nodiscard]] Mesh with_copied_heads(Mesh mesh, int copies);

// Whether its tensor group is a grid: of a 2d, 2.5d or 3d layout.
[[nodiscard]] bool has_grid(const Mesh& mesh);

// Throws std::logic_error for a name that the mesh has not.
[[nodiscard]] Axis axis_of(const Mesh& mesh, std::string_view name);
// Those of these names that the mesh has with more than one rank.
[[nodiscard]] std::vector<Axis> axes_of(const Mesh& mesh, const std::vector<std::string_view>& names);

[[nodiscard]] inline int size(const Mesh& mesh, Axis axis) { return mesh.axes[axis.index].size; }
// Product of the sizes; of the empty set 1.
[[nodiscard]] int size(const Mesh& mesh, Axes over);
[[nodiscard]] int ranks(const Mesh& mesh);
// The members in the order of the mesh.
[[nodiscard]] std::vector<Axis> members(const Mesh& mesh, Axes set);

// Position of a rank on one axis, and among those that the axes (major to minor) tell apart.
[[nodiscard]] int coordinate(const Mesh& mesh, int rank, Axis axis);
[[nodiscard]] int position(const Mesh& mesh, int rank, const std::vector<Axis>& major_to_minor);

// The ranks that differ from `rank` on these axes alone, ascending, `rank` included.
[[nodiscard]] std::vector<int> group(const Mesh& mesh, int rank, Axes over);

// "tensor.row × tensor.column".
[[nodiscard]] std::string describe(const Mesh& mesh, Axes over);

}  // namespace plumb
