#include "common/planner/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/planner/stage_programs.hpp"
#include "common/schedule/action.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {
namespace {

double of_action(const ProgramTraffic& traffic, ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
      return traffic.forward;
    case ActionKind::input_gradient:
      return traffic.input_gradient;
    case ActionKind::weight_gradient:
      return traffic.weight_gradient;
    case ActionKind::backward:
      return traffic.input_gradient + traffic.weight_gradient;
    case ActionKind::optimizer_step:
      return traffic.once;
    default:
      return 0;
  }
}

double of_message(const Event& event, const Plan& plan) {
  const auto bytes = static_cast<double>(event.bytes.value);
  const TensorLayout& tensor = plan.layout.tensor;
  if (is_receive(event.action.kind)) {
    const bool scattered = plan.software.scattered_messages && !divides_tokens(tensor);
    return scattered ? tensor.degree * bytes : bytes;  // its own part, and those of the others of its tensor group
  }
  if (event.action.kind != ActionKind::reduce_gradient) return bytes;
  const auto stage = static_cast<std::size_t>(event.action.stage);
  const int ranks = data_degree(plan.layout, plan.schedule.rank_of_stage[stage]) * replicas(plan.schedule);
  return 2.0 * (ranks - 1) / ranks * bytes;
}

}  // namespace

std::vector<ProgramTraffic> tensor_traffic(const Plan& plan, Slice slice) {
  std::vector<ProgramTraffic> all(static_cast<std::size_t>(stages(plan.schedule)));
  if (plan.layout.tensor.degree == 1) return all;
  const StagePrograms programs(plan, slice);
  std::map<const BlockProgram*, ProgramTraffic> known;
  const auto of_phase = [&](const BlockProgram* program, Phase phase) {
    const auto [found, is_new] = known.try_emplace(program);
    if (is_new) found->second = program_traffic(*program);
    return phase == Phase::forward          ? found->second.forward
           : phase == Phase::input_gradient ? found->second.input_gradient
                                            : found->second.weight_gradient;
  };
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    ProgramTraffic& sum = all[static_cast<std::size_t>(stage)];
    const auto of_kind = [&](ActionKind kind) {
      double received = 0;
      for (const BlockPass& pass : programs.passes(stage, kind)) {
        for (const Phase phase : pass.phases) received += of_phase(pass.program, phase);
      }
      return received;
    };
    sum = {.forward = of_kind(ActionKind::forward),
           .input_gradient = of_kind(ActionKind::input_gradient),
           .weight_gradient = of_kind(ActionKind::weight_gradient)};
    for (const BlockProgram* program : programs.blocks(stage)) sum.once += program_traffic(*program).once;
  }
  return all;
}

void count_received(Timeline& timeline, const Plan& plan) {
  std::vector<std::vector<ProgramTraffic>> by_slice;  // one where all are alike
  if (plan.schedule.slice_tokens.empty()) {
    by_slice.push_back(tensor_traffic(plan, slices_of(plan).front()));
  } else {
    for (const Slice& slice : slices_of(plan)) by_slice.push_back(tensor_traffic(plan, slice));
  }
  std::vector<double> received(timeline.ranks.size());
  for (const Event& event : timeline.steps.front().events) {
    const auto slice = static_cast<std::size_t>(std::max(0, event.action.microbatch)) % by_slice.size();
    const ProgramTraffic& of_stage = by_slice[slice][static_cast<std::size_t>(event.action.stage)];
    received[static_cast<std::size_t>(event.rank)] += of_message(event, plan) + of_action(of_stage, event.action.kind);
  }
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    timeline.ranks[rank].received_bytes = {std::llround(received[rank])};
  }
}

}  // namespace plumb
