// PipeDream, arXiv 1806.03377, section 3.2, with one worker for each stage and as many stages as there are workers:
//   A(j, m) = min over k of max(A(k, m − 1), 2 · C(k), T(k + 1 … j)),
// where T is the forward and backward time of the layers of a stage and C(k) the time to send the activations of layer
// k, as long as that of their gradient, which goes the other way. The slowest stage or link sets the pace.
#include "common/split/baselines/least_worst.hpp"

namespace plumb {

Split pipedream_split(const CutProblem& problem) {
  require_sound(problem);
  const std::vector<Seconds> before = times_before(problem);
  return least_worst_split(problem.blocks(), problem.stages(), [&](int stage, int first, int last) {
    const Seconds compute = before[static_cast<std::size_t>(last)] - before[static_cast<std::size_t>(first)];
    return stage == 0 ? compute : std::max(compute, 2 * problem.messages[static_cast<std::size_t>(stage) - 1]);
  });
}

}  // namespace plumb
