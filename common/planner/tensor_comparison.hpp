// A scenario in every tensor layout that its tensor degree allows.
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
  Candidate best = {};  // of the scenario's microbatches, schedules and splits; or why none can be built
  // Of one microbatch and one rank, the mean of the model's layers.
  ProgramTraffic layer = {};
  double across = 0;                   // bytes of its F, I and W that go over groups of ranks on several machines
  CommunicationTime tensor_time = {};  // in one step, the mean of the pipeline's ranks
  Seconds exposed = {};                // of that and all other communication
};

// Best first, as candidates stand; last those that cannot be built. Throws InputError where the scenario leaves more of
// its layout open than the tensor's kind, depth and sequence parallelism, or its tensor degree is 1.
[[nodiscard]] std::vector<ComparedTensor> compare_tensor_layouts(const Scenario& scenario, const Evaluator& evaluator);

}  // namespace plumb
