// Actions in words, for who meets their letters in a message.
#pragma once

#include <string>
#include <string_view>

#include "common/schedule/schedule.hpp"

namespace plumb {

// "stage 0's backward of microbatch 1". `slices`: parts that the schedule cuts each sequence into, at least 1; actions
// count these: "stage 0's backward of slice 1 of microbatch 0".
[[nodiscard]] std::string spelled_out(const Action& action, int slices = 1);

// The same of an action of the schedule; "stage 7's forward of microbatch 1 (head part)" where it divides a
// vocabulary.
[[nodiscard]] std::string spelled_out(const Action& action, const Schedule& schedule);

// "(0B1: stage 0's backward of microbatch 1)", of the first action that `text` names; empty: it names none.
[[nodiscard]] std::string legend_of(std::string_view text, int slices = 1);

}  // namespace plumb
