#include "exec/run/overlapped_reduction.hpp"

#include <algorithm>
#include <utility>

#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/reductions.hpp"
#include "exec/transport/stream_bucket.hpp"

namespace plumb::exec {
namespace {

std::vector<Action> reducing(const Plan& plan, const std::vector<Action>& actions) {
  std::vector<Action> last = last_weight_gradients(actions);
  std::erase_if(last, [&](const Action& action) { return !reduces_beside_backward(plan, action.stage); });
  return last;
}

Bytes bytes_of(const DeviceFloats& gradient) { return {static_cast<std::int64_t>(gradient.size_bytes())}; }

}  // namespace

OverlappedReduction::OverlappedReduction(const Plan& plan, const std::vector<Action>& actions, Transport& world,
                                         Device& device, std::vector<int> data_group, EmulatedWire* emulated)
    : beside_(reducing(plan, actions)),
      world_(world),
      device_(device),
      data_group_(std::move(data_group)),
      shards_(state_shards(plan.layout) > 1),
      bucket_(bucket_bytes(plan.software, static_cast<int>(data_group_.size()))),
      emulated_(emulated) {
  if (emulated_ == nullptr && !device.is_asynchronous()) {
    on_host_.emplace(world, data_group_, shards_ ? SumsBeside::Gets::own_part : SumsBeside::Gets::whole);
  }
}

void OverlappedReduction::prepare(const Action& action, Stage& stage) {
  if (std::ranges::find(beside_, action) == beside_.end()) return;
  stage_ = action.stage;
  stage.report_gradients([this](DeviceFloats gradient) { add(gradient); });
}

void OverlappedReduction::progress() {
  if (on_host_) on_host_->progress();
}

OverlappedReduction::Sum OverlappedReduction::finish(std::int32_t stage, Clock::time_point deadline) {
  const auto found = sums_.find(stage);
  if (found == sums_.end()) return {};
  if (emulated_ != nullptr) emulated_->wait(found->second.end);
  if (on_host_) on_host_->finish(found->second.started, deadline);
  device_.compute().wait(found->second.last);
  return found->second;
}

void OverlappedReduction::finish_all(Clock::time_point deadline) {
  if (on_host_) on_host_->finish(deadline);
}

void OverlappedReduction::add(DeviceFloats gradient) {
  start(bucket_.add(gradient, bytes_of(gradient)));
  progress();
}

void OverlappedReduction::start(const std::vector<DeviceFloats>& bucket) {
  if (bucket.empty()) return;
  const auto [found, is_first] = sums_.try_emplace(stage_);
  Sum& sum = found->second;
  if (is_first) sum.begun = Clock::now();
  Bytes full;
  for (const DeviceFloats& gradient : bucket) {
    full += bytes_of(gradient);
    if (on_host_) on_host_->start(gradient.on_host());
  }
  sum.bytes += full;
  if (emulated_ != nullptr) {
    sum.end = emulated_->start_reduction(full);
  } else if (on_host_) {
    sum.started = on_host_->started();
  } else {
    start_on_streams(bucket, sum);
  }
}

void OverlappedReduction::start_on_streams(const std::vector<DeviceFloats>& bucket, Sum& sum) {
  std::vector<CollectiveValue> values;
  for (const DeviceFloats& gradient : bucket) values.push_back({.data = gradient.bytes(), .count = gradient.size});
  const MomentPtr ready = device_.compute().record();
  if (!sum.first) sum.first = ready;
  sum.last = start_bucket(world_, device_,
                          {.kind = shards_ ? Collective::reduce_scatter : Collective::all_reduce,
                           .group = data_group_,
                           .bucket = values,
                           .ready = ready});
}

}  // namespace plumb::exec
