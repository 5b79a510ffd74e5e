// Gradients that the ranks of a grid have summands of, added up once a step over some of its axes.
#pragma once

#include <vector>

#include "common/base/units.hpp"
#include "common/cost/tensor_groups.hpp"

namespace plumb {

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
