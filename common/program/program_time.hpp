// How long the phases of a block's program take on a machine.
#pragma once

#include "common/cost/tensor_groups.hpp"
#include "common/program/step.hpp"

namespace plumb {

// Of one step alone; a move among those of `groups` that its axes name.
[[nodiscard]] Seconds step_time(const ProgramStep& step, const Machine& machine, const TensorGroups& groups);

struct PhaseTimes {
  Seconds forward;
  Seconds input_gradient;   // alone
  Seconds weight_gradient;  // alone
  Seconds hidden;           // what a full backward saves on both: collectives of either beside matmuls of the other
  Seconds redone;           // of the forward, what selective recompute does again
  Seconds forward_moves;    // of the forward, in which only collectives run
  Seconds input_gradient_moves;
  Seconds weight_gradient_moves;
  // What collectives take beside computing of their own phase, which is not in the phase's time twice.
  Seconds forward_beside = {};
  Seconds input_gradient_beside = {};
  Seconds weight_gradient_beside = {};
};

// Sums over the steps, each phase at least what the host needs to launch its kernels.
[[nodiscard]] PhaseTimes phase_times(const BlockProgram& program, const Machine& machine, const TensorGroups& groups);

// The same with nothing beside anything: how collectives run around computations that were measured.
[[nodiscard]] BlockProgram without_overlap(BlockProgram program);

}  // namespace plumb
