#include "common/program/program_traffic.hpp"

#include <algorithm>

namespace plumb {
namespace {

double ProgramTraffic::*bytes_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return &ProgramTraffic::forward;
    case Phase::input_gradient:
      return &ProgramTraffic::input_gradient;
    default:
      return &ProgramTraffic::weight_gradient;
  }
}

}  // namespace

ProgramTraffic program_traffic(const BlockProgram& program) {
  ProgramTraffic traffic;
  for (const ProgramStep& step : program.steps) traffic.*bytes_of(step.phase) += step.move.received;
  for (const StepMove& move : program.once) traffic.once += move.received;
  return traffic;
}

double of_phase(const ProgramTraffic& traffic, Phase phase) { return traffic.*bytes_of(phase); }

double summed_once(const BlockProgram& program, int ranks) {
  if (ranks == 1) return 0;
  return program_traffic(program).once * ranks / (2.0 * (ranks - 1));
}

std::vector<const StepMove*> moves_of(const BlockProgram& program, Phase phase) {
  std::vector<const StepMove*> moves;
  for (const ProgramStep& step : program.steps) {
    if (step.kind == StepKind::move && step.phase == phase) moves.push_back(&step.move);
  }
  if (phase != Phase::forward) std::ranges::reverse(moves);
  return moves;
}

}  // namespace plumb
