#include "exec/run/gradient_sums.hpp"

#include <algorithm>

#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/stream_bucket.hpp"

namespace plumb::exec {
namespace {

Bytes bytes_of(const std::vector<DeviceFloats>& gradients) {
  Bytes sum;
  for (const DeviceFloats& gradient : gradients) sum += Bytes{static_cast<std::int64_t>(gradient.size_bytes())};
  return sum;
}

}  // namespace

GradientSums::GradientSums(const Plan& plan, const std::vector<Action>& actions, LaneTransport& transport,
                           const RankStages& stages, Device& device, EmulatedWire* emulated)
    : transport_(transport),
      stages_(stages),
      device_(device),
      emulated_(emulated),
      group_(shard_group(plan.layout, transport.world().rank())),
      copies_(replicate_group(plan.layout, transport.world().rank())),
      shards_(state_shards(plan.layout) > 1) {
  if (group_.size() > 1 && reduces_beside_backward(plan, 0)) {  // stage 0, if only one does
    overlapped_.emplace(plan, actions, transport.world(), device, group_, emulated);
  }
  if (emulated == nullptr && plan.layout.data.quantized_gradients > 0) {
    const int rank = transport.world().rank();
    quantised_.emplace(transport.world(), inside_group(plan.layout, rank), across_group(plan.layout, rank));
  }
}

void GradientSums::begin_step() {
  tied_added_ = false;
  if (overlapped_) overlapped_->begin_step();
}

void GradientSums::perform(const Action& action, Event& event, ActionMoments& moments, Clock::time_point deadline) {
  if (emulated_ != nullptr) return emulate(action, event, moments, deadline);
  if (action.kind == ActionKind::reduce_gradient) add_tied_of_this_rank();
  const RankStages::Reduction reduction = stages_.reduction(action);
  event.peer = reduction.peer;
  const bool on_device = device_.is_asynchronous();
  if (on_device) moments.begin = device_.compute().record();
  if (overlapped_ && reduction.peer < 0) {
    take_overlapped(action, event, moments, deadline);
    // What follows goes between the same ranks.
    if (!reduction.gradients.empty()) overlapped_->finish_all(deadline);
  }
  if (on_device && shards_ && reduction.peer < 0) {
    event.bytes += sum_on_stream(Collective::reduce_scatter, group_, reduction.gradients);
  } else {
    for (const DeviceFloats& gradient : reduction.gradients)
      sum(reduction.peer, {gradient.data, gradient.size}, deadline);
    event.bytes += bytes_of(reduction.gradients);
  }
  if (reduction.peer < 0 && copies_.size() > 1) event.bytes += sum_over_copies(stages_.held(action.stage), deadline);
  if (on_device) moments.end = device_.compute().record();
}

// As `perform`, in the same order.
void GradientSums::emulate(const Action& action, Event& event, ActionMoments& moments, Clock::time_point deadline) {
  const WireTimes& times = emulated_->times();
  const RankStages::Reduction reduction = stages_.reduction(action);
  const Bytes left = bytes_of(reduction.gradients);
  event.peer = reduction.peer;
  if (reduction.peer >= 0) {
    const auto [first, second] = pair_with(reduction.peer);
    event.bytes = left;
    return emulated_->take(times.exchange(first, second, left),
                           std::array{transport_.world_rank(first), transport_.world_rank(second)}, deadline);
  }
  if (overlapped_) take_overlapped(action, event, moments, deadline);
  event.bytes += left;
  if (left > Bytes{}) emulated_->wait(emulated_->start_reduction(left));
  emulated_->meet(group_, deadline);
  if (copies_.size() == 1) return;
  const Bytes own = bytes_of(stages_.held(action.stage).own_gradients());
  event.bytes += own;
  emulated_->take(times.sum_over_copies(own), copies_, deadline);
}

void GradientSums::take_overlapped(const Action& action, Event& event, ActionMoments& moments,
                                   Clock::time_point deadline) {
  const OverlappedReduction::Sum done = overlapped_->finish(action.stage, deadline);
  event.bytes += done.bytes;
  moments.beside_since = done.first;
  if (done.bytes > Bytes{} && !done.first) event.beside = event.start - seconds_of(done.begun);
}

// Without a peer with the ranks that train the same stage on other data.
void GradientSums::sum(int peer, std::span<float> values, Clock::time_point deadline) {
  if (peer < 0 && shards_) return sum_own_part(values, deadline);
  if (peer < 0) return transport_.world().all_reduce(group_, values, deadline);
  transport_.all_reduce(pair_with(peer), values, deadline);
}

std::array<int, 2> GradientSums::pair_with(int peer) const {
  const int rank = transport_.rank();
  return {std::min(rank, peer), std::max(rank, peer)};
}

void GradientSums::sum_own_part(std::span<float> values, Clock::time_point deadline) {
  if (quantised_) {
    quantised_->start(values);
    return quantised_->finish(deadline);
  }
  Transport& world = transport_.world();
  const std::vector<std::span<std::byte>> parts =
      equal_parts(std::as_writable_bytes(values), group_.size(), sizeof(float));
  const std::vector<std::span<const std::byte>> given(parts.begin(), parts.end());
  Collectives(world).reduce_scatter(group_, given, parts[position_in(group_, world.rank())], ElementType::fp32,
                                    deadline);
}

// As one launch.
Bytes GradientSums::sum_on_stream(Collective kind, std::span<const int> group,
                                  const std::vector<DeviceFloats>& gradients) {
  std::vector<CollectiveValue> values;
  for (const DeviceFloats& gradient : gradients) values.push_back({.data = gradient.bytes(), .count = gradient.size});
  return move_bucket(transport_.world(), device_, {.kind = kind, .group = group, .bucket = values});
}

Bytes GradientSums::sum_over_copies(Stage& stage, Clock::time_point deadline) {
  if (device_.is_asynchronous()) return sum_on_stream(Collective::all_reduce, copies_, stage.own_gradients());
  const std::vector<DeviceFloats> parts = stage.own_gradients();
  for (const DeviceFloats& part : parts) transport_.world().all_reduce(copies_, part.on_host(), deadline);
  return bytes_of(parts);
}

void GradientSums::add_tied_of_this_rank() {
  if (tied_added_ || emulated_ != nullptr) return;
  tied_added_ = true;
  stages_.add_tied_gradients(device_.compute());
}

}  // namespace plumb::exec
