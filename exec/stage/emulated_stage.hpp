// A stage that waits the predicted time instead of computing, and passes on as many bytes as the real one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/stage/stage.hpp"

namespace plumb::exec {

// Whether an emulated stage's gradients and weights have memory, so that they can be summed and gathered, or a size
// alone: a null pointer, where collectives take their predicted times and touch nothing (exec/emulation).
enum class GradientMemory : std::uint8_t { held, none };

struct Emulation {
  Transport* run = nullptr;  // the rank's own transport; null: nobody can end it, and nothing goes on meanwhile
  GradientMemory gradients = GradientMemory::held;
  Seconds patience{60};  // how long a rank waits for another of its tensor group
};

// The stages on a rank of the plan's layout, null elsewhere. They refuse what a real stage would: a backward without
// its forward, an input of the wrong size, work left over at the end of the step. While they wait they poll `run` and
// throw what it throws: a run that is told to stop does not wait for them. In an asynchronous tensor group their
// actions go part by part (exec/emulation/emulated_group.hpp), but for a backward beside which gradients are reduced,
// and for overlapped pairs.
[[nodiscard]] std::vector<std::unique_ptr<Stage>> make_emulated_stages(const Plan& plan, int rank,
                                                                       const Emulation& emulation = {});

}  // namespace plumb::exec
