// A scenario in every tensor layout that its tensor degree allows, and with its vocabulary whole and divided.
#pragma once

#include <vector>

#include "common/planner/planner.hpp"
#include "common/program/program_traffic.hpp"
#include "common/timeline/communication_time.hpp"

namespace plumb {

// 1d without and with sequence parallelism, 2d, 2.5d of each depth above one, 3d: those that this many ranks make, of
// grids with a side above one.
[[nodiscard]] std::vector<TensorLayout> tensor_layouts_of(int degree);

struct ComparedTensor {
  TensorLayout tensor = {};
  int vocabulary_barriers = 0;  // of a vocabulary over the pipeline; 0: it is whole
  Candidate best = {};          // of the scenario's microbatches, schedules and splits; or why none can be built
  // Of one microbatch and one rank, the mean of the model's layers.
  ProgramTraffic layer = {};
  double across = 0;  // bytes of its F, I and W that go over groups of ranks on several machines
  double joined = 0;  // bytes that the parts of a vocabulary exchange of one microbatch, mean of the ranks
  CommunicationTime tensor_time = {};  // in one step, the mean of the pipeline's ranks
  Seconds exposed = {};                // of that and all other communication
};

// Best first, as candidates stand; last those that cannot be built. A scenario that divides its vocabulary, or leaves
// open whether it does, has each with the vocabulary whole as well. Throws InputError where it leaves more of its
// layout open than that and the tensor's kind, depth and sequence parallelism, or its tensor degree is 1 and the
// vocabulary whole.
[[nodiscard]] std::vector<ComparedTensor> compare_tensor_layouts(const Scenario& scenario, const Evaluator& evaluator);

}  // namespace plumb
