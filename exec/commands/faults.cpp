#include "exec/commands/faults.hpp"

#include <algorithm>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

// The second activation of a rank is received before its first.
bool swap_receives(std::vector<Action>& actions) {
  const auto is_one = [](const Action& action) { return action.kind == ActionKind::receive_forward; };
  const auto first = std::find_if(actions.begin(), actions.end(), is_one);
  if (first == actions.end()) return false;
  const auto second = std::find_if(first + 1, actions.end(), is_one);
  if (second == actions.end()) return false;
  std::rotate(first, second, second + 1);
  return true;
}

bool drop_weight_gradient(std::vector<Action>& actions) {
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    if (action->kind == ActionKind::weight_gradient) {
      actions.erase(action);
      return true;
    }
    if (action->kind == ActionKind::backward) {
      action->kind = ActionKind::input_gradient;
      return true;
    }
  }
  return false;
}

}  // namespace

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> names{"swapped-receive", "dropped-weight-gradient"};
  return names;
}

Schedule with_fault(Schedule lowered, const std::string& fault) {
  const auto& names = fault_names();
  if (std::find(names.begin(), names.end(), fault) == names.end()) {
    throw InputError("--inject", "there is no fault '" + fault + "'", did_you_mean(fault, names));
  }
  for (auto actions = lowered.actions.rbegin(); actions != lowered.actions.rend(); ++actions) {
    if (fault == names[0] ? swap_receives(*actions) : drop_weight_gradient(*actions)) return lowered;
  }
  throw InputError("--inject", "the schedule has no place for '" + fault + "'");
}

}  // namespace plumb::exec
