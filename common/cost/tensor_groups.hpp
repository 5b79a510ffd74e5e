// Where the ranks of a tensor group stand that move something among themselves: all of them, or of a grid those along
// some of its axes.
#pragma once

#include <array>
#include <optional>
#include <stdexcept>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/placement/mesh.hpp"

namespace plumb {

class TensorGroups {
 public:
  // Axes of a placed block's mesh, in which those of the tensor layout are the innermost: of a grid at most three.
  using ByAxes = std::array<std::optional<GroupPlacement>, 8>;

  // Of the 1d layout: whatever moves is costed as among all ranks of the group.
  TensorGroups(const GroupPlacement& all = {}) : all_(all) {}  // NOLINT(google-explicit-constructor)
  // Of a grid, by the axes' bits; none: no ring of neighbours.
  TensorGroups(const GroupPlacement& all, const ByAxes& by_axes) : all_(all), is_grid_(true), by_axes_(by_axes) {}

  [[nodiscard]] const GroupPlacement& all() const { return all_; }
  [[nodiscard]] bool is_grid() const { return is_grid_; }
  [[nodiscard]] const ByAxes& by_axes() const { return by_axes_; }
  // Throws std::logic_error for axes of a grid that do not stand side by side: no table moves anything over such.
  [[nodiscard]] const GroupPlacement& over(Axes axes) const {
    if (!is_grid_) return all_;
    if (axes.bits >= by_axes_.size() || !by_axes_[axes.bits]) {
      throw std::logic_error("a collective over axes of a grid that do not stand side by side");
    }
    return *by_axes_[axes.bits];
  }
  bool operator==(const TensorGroups&) const = default;

 private:
  GroupPlacement all_;
  bool is_grid_ = false;
  ByAxes by_axes_ = {};
};

// Gradients that the ranks of a grid have summands of, added up once a step over some of its axes.
struct TensorSum {
  Axes over = {};
  Bytes bytes = {};  // as each rank holds them
  bool operator==(const TensorSum&) const = default;
};

// One for each set of axes, ascending.
void add_to(std::vector<TensorSum>& sums, const TensorSum& more);

// All-reduces, one after the other.
[[nodiscard]] Seconds time_of(const std::vector<TensorSum>& sums, const Machine& machine, const TensorGroups& groups);

}  // namespace plumb
