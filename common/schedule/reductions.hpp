// Sums of gradients over two ranks, REDUCE_TIED and REDUCE_GRAD: which action each of the two has for it.
#pragma once

#include "common/schedule/action.hpp"

namespace plumb {

[[nodiscard]] constexpr bool is_reduction(ActionKind kind) {
  return kind == ActionKind::reduce_tied || kind == ActionKind::reduce_gradient;
}

// The other rank's action: of a tied embedding each rank names its own stage, the first or the last; the ranks of two
// replicas name the same.
[[nodiscard]] constexpr Action other_half(Action reduction, std::int32_t stages) {
  if (reduction.kind == ActionKind::reduce_tied) reduction.stage = reduction.stage == 0 ? stages - 1 : 0;
  return reduction;
}

// One name for both.
[[nodiscard]] constexpr Action name_of_both(Action reduction) {
  if (reduction.kind == ActionKind::reduce_tied) reduction.stage = 0;
  return reduction;
}

}  // namespace plumb
