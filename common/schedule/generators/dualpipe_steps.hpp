// The eight steps that DualPipe and DualPipeV share (step() of github.com/deepseek-ai/DualPipe).
#pragma once

#include <array>

#include "common/schedule/schedule.hpp"

namespace plumb {

// One of the two directions that microbatches go through a rank: a replica (DualPipe), or a chunk (DualPipeV).
struct DualPipeDirection {
  int stage = 0;
  int first_microbatch = 0;
};

// Of the two, direction 0 enters the pipeline near this rank.
struct DualPipeRank {
  int half = 1;          // H: ranks from the end of the pipeline to where both directions meet
  int h = 0;             // this rank's distance from its end
  int microbatches = 1;  // that go each direction, at least 2H
  std::array<DualPipeDirection, 2> directions;
};

// Appends to the list of `rank` and to the overlapped pairs, which stay unsorted.
void append_dualpipe_steps(Schedule& schedule, int rank, const DualPipeRank& shape);

}  // namespace plumb
