// What a rank holds over time, and of what it consists when it is most.
#pragma once

#include "common/base/units.hpp"
#include "common/schedule/action.hpp"

namespace plumb {

// Beside the states; of a change, more, or fewer if negative.
struct HeldBytes {
  Bytes kept = {};       // activations between their actions
  Bytes messages = {};   // received and not taken yet, or sent and not there yet
  Bytes workspace = {};  // of the action that runs
  bool operator==(const HeldBytes&) const = default;
};

[[nodiscard]] inline Bytes sum(const HeldBytes& held) { return held.kept + held.messages + held.workspace; }

struct MemoryPoint {
  Seconds time;
  Bytes bytes;
  bool operator==(const MemoryPoint&) const = default;
};

struct PeakMoment {
  HeldBytes held = {};
  Seconds time = {};
  Action action = {};  // that runs then
  bool operator==(const PeakMoment&) const = default;
};

}  // namespace plumb
