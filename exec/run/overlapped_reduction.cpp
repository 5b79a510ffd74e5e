#include "exec/run/overlapped_reduction.hpp"

#include <utility>

#include "common/plan/plan_costs.hpp"

namespace plumb::exec {
namespace {

// Of each stage that reduces beside it: the stage by the place.
std::map<std::int32_t, std::int32_t> last_backwards(const Plan& plan, const std::vector<Action>& actions) {
  std::map<std::int32_t, std::int32_t> last;
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const ActionKind kind = actions[index].kind;
    if (kind == ActionKind::backward || kind == ActionKind::weight_gradient) {
      last[actions[index].stage] = static_cast<std::int32_t>(index);
    }
  }
  std::map<std::int32_t, std::int32_t> stages;
  for (const auto& [stage, index] : last) {
    if (reduces_beside_backward(plan, stage)) stages[index] = stage;
  }
  return stages;
}

}  // namespace

OverlappedReduction::OverlappedReduction(const Plan& plan, const std::vector<Action>& actions, Transport& world,
                                         std::vector<int> data_group)
    : last_backwards_(last_backwards(plan, actions)),
      bucket_bytes_(bucket_bytes(plan.software, static_cast<int>(data_group.size()))),
      sums_(world, std::move(data_group)) {}

void OverlappedReduction::prepare(std::int32_t index, Stage& stage) {
  const auto found = last_backwards_.find(index);
  if (found == last_backwards_.end()) return;
  stage.report_gradients([this, of = found->second](DeviceFloats gradient) { add(of, gradient); });
}

Bytes OverlappedReduction::finish(std::int32_t stage, Clock::time_point deadline) {
  sums_.finish(deadline);
  const auto found = reported_.find(stage);
  return found == reported_.end() ? Bytes{} : found->second;
}

void OverlappedReduction::add(std::int32_t stage, DeviceFloats gradient) {
  const Bytes bytes{static_cast<std::int64_t>(gradient.size_bytes())};
  bucket_.push_back(gradient);
  in_bucket_ += bytes;
  reported_[stage] += bytes;
  if (in_bucket_ >= bucket_bytes_) start_bucket();
  sums_.progress();
}

void OverlappedReduction::start_bucket() {
  for (const DeviceFloats& gradient : bucket_) sums_.start(gradient.on_host());
  bucket_.clear();
  in_bucket_ = {};
}

}  // namespace plumb::exec
