#include "common/schedule/held_activations.hpp"

#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

int activation_change(const Schedule& schedule, const ActionIndex& index, int rank, const Action& action) {
  if (is_part(schedule, action.stage)) return 0;
  switch (action.kind) {
    case ActionKind::forward:
      return index.find(ActionKind::recompute, action.stage, action.microbatch) == nowhere ? 1 : 0;
    case ActionKind::recompute:
      return 1;
    case ActionKind::backward:
    case ActionKind::weight_gradient:
      return -1;
    case ActionKind::evict:
    case ActionKind::load:
      return sends_activations(schedule, rank, action) ? -1 : 1;
    default:
      return 0;
  }
}

}  // namespace plumb
