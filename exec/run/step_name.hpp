// How users count the steps of a run: those of the warm-up apart, both from 1.
#pragma once

#include <cstdint>
#include <string>

namespace plumb::exec {

// Of the step number `step`, from 0, of a run whose first `warm_up` steps are its warm-up: "warm-up step 1", "step 3".
[[nodiscard]] inline std::string step_name(std::int64_t step, int warm_up) {
  return step < warm_up ? "warm-up step " + std::to_string(step + 1) : "step " + std::to_string(step - warm_up + 1);
}

}  // namespace plumb::exec
