// What a process that predicts a candidate answers: bytes, since it shares no memory with the search.
#pragma once

#include <string>

#include "common/planner/planner.hpp"

namespace plumb {

// The prediction of a plan that was built, or why the engine refuses it; of one that was not built nothing. Throws
// NoRoomHere where the process lacks memory.
[[nodiscard]] std::string predicted_answer(const Candidate& candidate, const Evaluator& engine);

// What was answered, as the candidate's prediction or reason.
void take_answer(Candidate& candidate, const std::string& answer);

}  // namespace plumb
