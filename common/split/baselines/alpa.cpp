// Alpa's inter-operator pass, arXiv 2201.12023, section 5.2: the least
//   T = Σ t_i + (B − 1) · max t_j
// over cuts, where t_i is what stage i takes for one of B microbatches; messages between stages are left out there. Its
// dynamic program runs over stages, layers and devices for every possible largest t_j. With the meshes given and alike,
// Σ t_i is the same for all cuts, so that the least T is that with the least slowest stage.
#include "common/split/baselines/least_worst.hpp"

namespace plumb {

Split alpa_split(const CutProblem& problem) {
  require_sound(problem);
  const std::vector<Seconds> before = times_before(problem);
  return least_worst_split(problem.blocks(), problem.stages(), [&](int, int first, int last) {
    return before[static_cast<std::size_t>(last)] - before[static_cast<std::size_t>(first)];
  });
}

}  // namespace plumb
