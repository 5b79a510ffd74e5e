// DAPPLE, arXiv 2007.01045, section 4.1: the latency of a step around the pivot stage Q, which has the least bubbles,
//   L = T_w + T_s + T_e,  T_w = Σ_{a ≤ Q} F_a,  T_s = (M − 1)(F_Q + B_Q),  T_e = Σ_{a ≤ Q} B_a
// (without replicas no gradients are reduced; messages are stages of their own, with F and B the time of one message).
// The paper finds the pivot by a rule, from the last stage on: the one that makes L longest, which is taken exactly
// here. T_w + T_e depends only on what lies before the pivot, so that cuts with the least longest L come from
//   A[s][j] = min over k of max(A[s − 1][k], Σ_{a before k}(F_a + B_a) + M · (F + B)[k, j)),
// with messages counted before their stage.
#include "common/split/baselines/least_worst.hpp"

namespace plumb {

Split dapple_split(const CutProblem& problem) {
  require_sound(problem);
  const std::vector<Seconds> before = times_before(problem);
  std::vector<Seconds> messages_before = {{}};
  for (const Seconds message : problem.messages) messages_before.push_back(messages_before.back() + 2 * message);
  const auto microbatches = static_cast<double>(problem.microbatches);
  return least_worst_split(problem.blocks(), problem.stages(), [&](int stage, int first, int last) {
    const auto s = static_cast<std::size_t>(stage);
    const Seconds until = before[static_cast<std::size_t>(first)];
    const Seconds own = before[static_cast<std::size_t>(last)] - until;
    const Seconds as_pivot = until + messages_before[s] + microbatches * own;
    if (stage == 0) return as_pivot;
    // The message before the stage, as a pivot itself.
    return std::max(as_pivot, until + messages_before[s - 1] + microbatches * 2 * problem.messages[s - 1]);
  });
}

}  // namespace plumb
