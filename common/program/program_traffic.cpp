#include "common/program/program_traffic.hpp"

#include <algorithm>

namespace plumb {

ProgramTraffic program_traffic(const BlockProgram& program) {
  ProgramTraffic traffic;
  for (const ProgramStep& step : program.steps) {
    (step.phase == Phase::forward          ? traffic.forward
     : step.phase == Phase::input_gradient ? traffic.input_gradient
                                           : traffic.weight_gradient) += step.move.received;
  }
  for (const StepMove& move : program.once) traffic.once += move.received;
  return traffic;
}

double of_phase(const ProgramTraffic& traffic, Phase phase) {
  return phase == Phase::forward          ? traffic.forward
         : phase == Phase::input_gradient ? traffic.input_gradient
                                          : traffic.weight_gradient;
}

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
