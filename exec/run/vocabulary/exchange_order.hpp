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

// Whether `rank` receives something of `other` in an exchange: of a broadcast the rank beside the parts alone has
// something; of a sum it alone gets what others have.
[[nodiscard]] bool gets_from(const Schedule& lowered, const Action& exchange, int rank, int other);

struct Giver {
  int rank = 0;  // of the pipeline
  Action action;
};
// Who gives what `rank` waits for at an action: to the exchange that it needs and those before it in its line, in their
// order; behind a step's computing to all. Empty where it waits for none.
[[nodiscard]] std::vector<Giver> givers_before(const Schedule& lowered, int rank, const Action& action);

}  // namespace plumb::exec
