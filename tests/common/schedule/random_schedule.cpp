#include "tests/common/schedule/random_schedule.hpp"

#include <algorithm>

namespace plumb {
namespace {

int pick(std::mt19937& random, int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); }

}  // namespace

Schedule random_schedule(std::mt19937& random) {
  Schedule schedule;
  schedule.name = "random";
  schedule.ranks = pick(random, 1, 4);
  schedule.microbatches = pick(random, 1, 6);
  schedule.chunks = pick(random, 1, 3);
  schedule.rank_of_stage = loop_placement(schedule.ranks, schedule.chunks);
  std::ranges::shuffle(schedule.rank_of_stage, random);
  schedule.actions.resize(static_cast<std::size_t>(schedule.ranks));
  const int last = stages(schedule) - 1;
  const bool split = pick(random, 0, 1) == 1;

  // What may run next; running one makes others possible.
  std::vector<Action> ready;
  for (int k = 0; k < schedule.microbatches; ++k) ready.push_back({ActionKind::forward, 0, k});
  const bool recompute = pick(random, 0, 1) == 1;
  const auto offer_gradient = [&](int stage, int k) {
    ready.push_back({recompute ? ActionKind::recompute
                     : split   ? ActionKind::input_gradient
                               : ActionKind::backward,
                     stage, k});
  };
  while (!ready.empty()) {
    const auto chosen = ready.begin() + pick(random, 0, static_cast<int>(ready.size()) - 1);
    const Action action = *chosen;
    ready.erase(chosen);
    schedule.actions[static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(action.stage)])]
        .push_back(action);
    switch (action.kind) {
      case ActionKind::forward:
        if (action.stage == last) {
          offer_gradient(last, action.microbatch);
        } else {
          ready.push_back({ActionKind::forward, action.stage + 1, action.microbatch});
        }
        break;
      case ActionKind::recompute:
        ready.push_back({split ? ActionKind::input_gradient : ActionKind::backward, action.stage, action.microbatch});
        break;
      case ActionKind::input_gradient:
        ready.push_back({ActionKind::weight_gradient, action.stage, action.microbatch});
        [[fallthrough]];
      case ActionKind::backward:
        if (action.stage > 0) offer_gradient(action.stage - 1, action.microbatch);
        break;
      default:
        break;
    }
  }
  return schedule;
}

}  // namespace plumb
