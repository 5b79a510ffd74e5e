#include "common/program/program_time.hpp"

#include <algorithm>
#include <array>

namespace plumb {

Seconds step_time(const ProgramStep& step, const Machine& machine, const TensorGroups& groups) {
  switch (step.kind) {
    case StepKind::matmul:
      return matmul_time(machine.device, step.matmul);
    case StepKind::core:
      return core_time(machine.device, step.flops, step.bytes);
    case StepKind::move:
      return collective_time(machine, step.move.collective, step.move.bytes, groups.over(step.move.over)) /
             step.move.pieces;
    default:
      return stream_time(machine.device, step.bytes);
  }
}

namespace {

// From the first of `steps` on.
void use_up(std::vector<Seconds>& uncovered, const std::vector<std::size_t>& steps, Seconds time) {
  for (const std::size_t step : steps) {
    const Seconds used = std::min(uncovered[step], time);
    uncovered[step] -= used;
    time -= used;
  }
}

}  // namespace

PhaseTimes phase_times(const BlockProgram& program, const Machine& machine, const TensorGroups& groups) {
  const std::vector<ProgramStep>& steps = program.steps;
  std::vector<Seconds> times;
  times.reserve(steps.size());
  for (const ProgramStep& step : steps) times.push_back(step_time(step, machine, groups));
  std::vector<Seconds> uncovered = times;  // of a step, beside which no move has run yet
  std::array<Seconds, 3> sums;
  std::array<Seconds, 3> moves;
  std::array<Seconds, 3> beside;
  std::array<int, 3> counts{};
  PhaseTimes result;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const ProgramStep& step = steps[i];
    const auto phase = static_cast<std::size_t>(step.phase);
    Seconds beside_same;
    Seconds beside_other;
    for (const std::size_t other : step.beside) {
      (steps[other].phase == step.phase ? beside_same : beside_other) += uncovered[other];
    }
    const Seconds left = std::max(times[i] - beside_same, Seconds{});
    result.hidden += std::min(left, beside_other);
    use_up(uncovered, step.beside, times[i]);
    sums[phase] += left;
    if (step.kind == StepKind::move) moves[phase] += left;
    beside[phase] += times[i] - left;
    ++counts[phase];
    if (step.redone) result.redone += times[i];
  }
  for (std::size_t phase = 0; phase < sums.size(); ++phase) {
    sums[phase] = std::max(sums[phase], machine.device.launch_time.value * static_cast<double>(counts[phase]));
  }
  result.forward = sums[0];
  result.input_gradient = sums[1];
  result.weight_gradient = sums[2];
  result.forward_moves = moves[0];
  result.input_gradient_moves = moves[1];
  result.weight_gradient_moves = moves[2];
  result.forward_beside = beside[0];
  result.input_gradient_beside = beside[1];
  result.weight_gradient_beside = beside[2];
  return result;
}

BlockProgram without_overlap(BlockProgram program) {
  for (ProgramStep& step : program.steps) step.beside.clear();
  return program;
}

}  // namespace plumb
