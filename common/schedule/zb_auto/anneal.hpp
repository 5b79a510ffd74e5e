// Improves the lists of a schedule by moving single actions of its critical path.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

struct Annealing {
  std::size_t evaluations;
  double heat;         // the first temperature, in the mean time of an action; it falls to 0
  std::uint64_t seed;  // from 1
};

// Simulated annealing; stops when the makespan reaches `target`. The result is never worse than `lists`, which must fit
// the limits, and fits them too.
[[nodiscard]] StepLists anneal(const Model& model, StepLists lists, double target, const Annealing& annealing);

}  // namespace plumb::zb_auto
