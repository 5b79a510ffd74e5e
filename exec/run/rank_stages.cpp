#include "exec/run/rank_stages.hpp"

#include <fmt/format.h>

#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb::exec {

Stage& RankStages::of(const Action& action) const { return in(replica_of(lowered_, action.microbatch), action.stage); }

Stage& RankStages::held(int stage) const {
  const bool second = replicas(lowered_) == 2 && rank_in_replica(lowered_, 1, stage) == rank_;
  return in(second ? 1 : 0, stage);
}

Stage& RankStages::in(int replica, int stage) const {
  const bool here = stage >= 0 && stage < all_stages(lowered_) && rank_in_replica(lowered_, replica, stage) == rank_;
  if (!here || !all_[stage_slot(lowered_, replica, stage)]) {
    throw RunError("", fmt::format("stage {} is not on this rank", stage));
  }
  return *all_[stage_slot(lowered_, replica, stage)];
}

double RankStages::loss() const {
  double sum = 0;
  for (int replica = 0; replica < replicas(lowered_); ++replica) {
    const bool parts = lowered_.vocabulary_barriers > 0;
    const int makes_it = parts ? head_part(lowered_, rank_) : stages(lowered_) - 1;
    const auto& last = all_[stage_slot(lowered_, replica, makes_it)];
    if (last) sum += last->loss();
  }
  return sum;
}

Payload RankStages::compute(const Action& action, Payload input) const {
  Stage& stage = action.kind == ActionKind::optimizer_step ? held(action.stage) : of(action);
  switch (action.kind) {
    case ActionKind::forward:
      return stage.forward(action.microbatch, std::move(input));
    case ActionKind::recompute:
      stage.recompute(action.microbatch);
      return {};
    case ActionKind::input_gradient:
      return stage.input_gradient(action.microbatch, std::move(input));
    case ActionKind::backward:
      return stage.backward(action.microbatch, std::move(input));
    case ActionKind::weight_gradient:
      stage.weight_gradient(action.microbatch);
      return {};
    case ActionKind::optimizer_step:
      stage.optimizer_step();
      return {};
    default:
      throw RunError("", "this kind of action is not executed yet");
  }
}

void RankStages::add_host_copies(Event& event) const {
  const ActionKind kind = event.action.kind;
  if (kind != ActionKind::optimizer_step && !gathers_weights(kind)) return;
  const Stage& stage = kind == ActionKind::optimizer_step ? held(event.action.stage) : of(event.action);
  const HostCopies copies = stage.host_copies();
  event.bytes = copies.bytes;
  event.waited = copies.time;
}

void RankStages::add_tied_gradients(Stream& compute) const {
  const int last = stages(lowered_) - 1;
  if (last == 0 || !holds(lowered_, rank_, 0) || !holds(lowered_, rank_, last)) return;
  const DeviceFloats a = held(0).tied_gradient();
  const DeviceFloats b = held(last).tied_gradient();
  if (a.size != b.size) throw RunError("", "the copies of the tied embedding differ in size");
  compute.add(a.data, b.data, a.size);
  compute.copy(reinterpret_cast<std::byte*>(b.data), reinterpret_cast<const std::byte*>(a.data), a.size_bytes());
}

RankStages::Reduction RankStages::reduction(const Action& action) const {
  if (action.kind == ActionKind::reduce_tied) {
    const int first = lowered_.rank_of_stage.front();
    const int last = lowered_.rank_of_stage.back();
    const int mine = rank_ == first ? 0 : stages(lowered_) - 1;
    return {.peer = rank_ == first ? last : first, .gradients = {held(mine).tied_gradient()}};
  }
  if (replicas(lowered_) == 1) return {.peer = -1, .gradients = held(action.stage).gradients()};
  const int first = rank_in_replica(lowered_, 0, action.stage);
  const int second = rank_in_replica(lowered_, 1, action.stage);
  return {.peer = rank_ == first ? second : first, .gradients = held(action.stage).gradients()};
}

}  // namespace plumb::exec
