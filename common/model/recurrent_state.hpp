// What a recurrence knows of the tokens before: what a slice of a sequence hands on to the next one.
#pragma once

#include <cstdint>

#include "common/model/layer.hpp"

namespace plumb {

// Of one sequence, as its mixer has it on one rank alone: the state after a slice's last token, in fp32 elements (as
// exec/stage/modules/gated_delta.cpp hands it on), and the last inputs of its convolution, tokens × channels. All 0 of
// a mixer that is no recurrence.
struct RecurrentState {
  std::int64_t elements = 0;
  std::int64_t channels = 0;
  std::int64_t tokens = 0;
};
[[nodiscard]] RecurrentState recurrent_state(const Mixer& mixer);

}  // namespace plumb
