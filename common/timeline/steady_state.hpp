// Where a step repeats itself: charts of many microbatches draw a repeating part once.
#pragma once

#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// A part of a step. What happens in it happens again `repeats` times in all, one after the other, with later
// microbatches.
struct Segment {
  Seconds from;
  Seconds to;  // of the first time
  int repeats = 1;
  bool operator==(const Segment&) const = default;
};

// In the order of time. Two segments are apart by what the first one's repeats cover. One segment with all of the step
// where nothing repeats at least three times on all ranks at once: same actions, stages, times, and microbatches all
// moved on by one number. Else three: before, the repeating part, after; a segment without length is left out.
[[nodiscard]] std::vector<Segment> steady_segments(const StepTimeline& step, const Schedule& schedule);

}  // namespace plumb
