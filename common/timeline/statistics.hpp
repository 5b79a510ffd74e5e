// Where the time of a step went, from its events alone: the same formulas for predicted and for measured steps.
#pragma once

#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// compute + exposed_communication + idle = the step's duration.
struct RankStatistics {
  Seconds compute;                // the rank computes: F, B, I, W, R, optimizer
  Seconds communication;          // at least one message to it, or collective of it, is on its way
  Seconds exposed_communication;  // of that, while it does not compute: it waits
  Seconds idle;                   // it neither computes nor is anything on its way to it
  bool operator==(const RankStatistics&) const = default;
};

// Bubbles as in common/graph/evaluate.hpp: over F, B, I, W and R (the optimizer's step counts as neither busy nor
// span).
struct StepStatistics {
  Seconds iteration;
  double bubble_makespan_fraction = 0;  // (duration − mean busy) / duration
  double bubble_span_fraction = 0;      // (longest rank's own span − mean busy) / that span
  std::vector<RankStatistics> ranks;
  bool operator==(const StepStatistics&) const = default;
};

// A collective is on its way from when the last of its ranks entered it: before, the others wait for that rank's
// compute.
[[nodiscard]] StepStatistics step_statistics(const StepTimeline& step, int ranks);

// Per rank, how much of its exposed time may have been idle or the reverse: when a message from another host was handed
// over is known as well as the clocks of the hosts agree. The sum of the two is on the rank's own clock.
[[nodiscard]] std::vector<Seconds> exposure_uncertainty(const Timeline& timeline, const StepTimeline& step);

// 0 for a step without duration.
[[nodiscard]] double tokens_per_s(const Timeline& timeline, const StepTimeline& step);

}  // namespace plumb
