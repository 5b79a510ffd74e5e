// PipeDream-2BW (Narayanan et al., arXiv 2006.09503, section 3.1): 1F1B without a flush; the gradients of e ≥ p
// microbatches are summed for one update. Two versions of the weights suffice, as every microbatch uses those one
// update before the newest that it could: w(u+1) = w(u) − η·∇f(w(u−1)) on all ranks.
//
// Order:  w × F, (m−w) × (F, B), w × B with w = min(p−r−1, m), and STEP u after B of microbatch (u+1)e − 1; e divides
// m,
//         e = p unless asked otherwise.
//
// Weights: F of microbatch k uses those after max(0, ⌊k/e⌋ − 1) updates; a rank keeps at most 2 versions.
//
// Bubble: (p−1)(F+B) for the first and last microbatches together; none between them.
//
// Memory: min(m, p−r).
#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {
namespace {

int update_interval(const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int m = shape.microbatches;
  const int e = shape.update_every == 0 ? p : shape.update_every;
  if (e >= p && m % e == 0) return e;
  const std::string where = "schedule pipedream-2bw";
  const std::string what = fmt::format("an update every {} microbatches, of {} on {} ranks: ", e, m, p);
  if (m < p) {
    throw InputError(where, what + "there must be at least one per rank", fmt::format("take {} microbatches", p));
  }
  // m itself is always allowed.
  int below = std::min(e, m);
  while (below >= p && m % below != 0) --below;
  int above = std::clamp(e, p, m);
  while (m % above != 0) ++above;
  throw InputError(where, what + "it must divide them, and be at least the ranks",
                   below >= p && below != above ? fmt::format("update every {} or {}", below, above)
                                                : fmt::format("update every {}", above));
}

}  // namespace

Schedule generate_pipedream_2bw(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("pipedream-2bw", shape);
  schedule.versions = WeightVersions::delayed;
  schedule.update_every = update_interval(shape);
  schedule.actions = one_f_one_b_with_updates(shape, schedule.update_every);
  return schedule;
}

}  // namespace plumb
