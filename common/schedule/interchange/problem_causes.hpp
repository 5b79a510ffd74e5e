// Problems of a schedule file folded by their cause, each with its place in the file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {

struct ProblemCause {
  Place place = {};  // without a file if the schedule was not read from a CSV
  std::string text = {};
  std::size_t follow = 0;  // further problems with the same cause
};

// Folds `problems`, which `validate` found in `reading`. A cell is a cause if few other cells have its microbatch or
// its stage: all that this number lacks follows from it. An action that is there twice is one cause with the missing
// action of the same stage and kind on its rank. Every other problem is its own cause.
[[nodiscard]] std::vector<ProblemCause> fold_problems(const ScheduleReading& reading,
                                                      const std::vector<ScheduleProblem>& problems,
                                                      const std::string& file);

}  // namespace plumb
