// Which exchange of a vocabulary's parts an action waits for or gives to, and whose actions give to it: from the lists
// of the ranks alone.
#pragma once

#include <optional>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb::exec {

// What brings the input of a compute action, or must have ended before it; both as the action's rank names it.
[[nodiscard]] std::optional<Action> exchange_before(const Schedule& lowered, const Action& action);
// Those that need an action's result, in their order: the first takes it. With one barrier the summand of the head's
// gradient is made when the statistics, which it gives, have come.
[[nodiscard]] std::vector<Action> exchanges_behind(const Schedule& lowered, const Action& action);

// What a rank does in the order of its list: one line has its broadcasts, another one all sums.
[[nodiscard]] constexpr bool are_of_one_line(const Action& exchange, const Action& other) {
  return (exchange.kind == ActionKind::broadcast) == (other.kind == ActionKind::broadcast);
}

struct Giver {
  int rank = 0;  // of the pipeline
  Action action;
};
// Who gives what `rank` waits for at an action: to the exchange that it needs and those before it in its line, in their
// order; behind a step's computing to all. Empty where it waits for none.
[[nodiscard]] std::vector<Giver> givers_before(const Schedule& lowered, int rank, const Action& action);

}  // namespace plumb::exec
