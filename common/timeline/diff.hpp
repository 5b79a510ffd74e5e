// Why a measured step differs from the predicted one, as a sum that closes.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// The change of the step's time when one class of predicted durations gives way to the measured ones.
struct DiffCause {
  std::string cause;                 // "slower F of stage 3", "transfers", "order", "host gaps", "residual"
  Seconds seconds;                   // > 0: the measured step is longer for it
  std::vector<std::string> actions;  // the largest contributors: "rank 2: 3F7 +1.2 ms"
  bool operator==(const DiffCause&) const = default;
};

struct TimelineDiff {
  Seconds predicted;
  Seconds measured;
  Seconds replay;
  std::vector<DiffCause> causes;  // in order of substitution; their seconds add up to measured − predicted
};

// Substitutes on one shared graph: measured compute (stage by stage, F, I/B, W, R apart), then transfers, then the
// order in which ranks acted, then host gaps; what is left is the residual. Compares with the measured median step.
// Throws InputError when the two are not of the same plan.
[[nodiscard]] TimelineDiff diff(const Timeline& predicted, const Timeline& measured);

}  // namespace plumb
