// PipeDream (Narayanan et al., arXiv 1806.03377, section 3): 1F1B without a flush. Each stage's weights are updated
// after every B; a microbatch's B uses the weights that its F used, which the rank keeps until then.
//
// Order:  w × F, (m−w) × (F, B, STEP), w × (B, STEP) with w = min(p−r−1, m); STEP k applies microbatch k's gradient.
//
// Weights: F of microbatch k uses those after max(0, k−w) updates; a rank keeps p−r versions if m ≥ 2(p−r−1).
//
// Bubble: (p−1)(F+B) for the first and last microbatches together; none between them.
//
// Memory: min(m, p−r).
#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {

Schedule generate_pipedream(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("pipedream", shape);
  if (shape.update_every > 1) {
    throw InputError("schedule pipedream",
                     fmt::format("an update every {} microbatches, but it updates after each", shape.update_every),
                     "take pipedream-2bw, which sums the gradients of several");
  }
  schedule.versions = WeightVersions::stashed;
  schedule.update_every = 1;
  schedule.actions = one_f_one_b_with_updates(shape, schedule.update_every);
  return schedule;
}

}  // namespace plumb
