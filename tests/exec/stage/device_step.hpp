// What a step takes on a device that ranks share: the device's time, the host's, and the runner's own.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/timeline/timeline.hpp"
#include "exec/run/rank_log.hpp"
#include "tests/exec/stage/pipelines.hpp"

namespace plumb::exec::test {

// Another stage, and when the host last had given it something to do.
class NotedStage final : public Stage {
 public:
  NotedStage(std::unique_ptr<Stage> stage, Clock::time_point& last) : stage_(std::move(stage)), last_(last) {}

  void begin_step(std::int64_t step) override { stage_->begin_step(step); }
  [[nodiscard]] Payload forward(int microbatch, Payload input) override {
    Payload output = stage_->forward(microbatch, std::move(input));
    last_ = Clock::now();
    return output;
  }
  void recompute(int microbatch) override { stage_->recompute(microbatch); }
  [[nodiscard]] Payload input_gradient(int microbatch, Payload gradient) override {
    Payload output = stage_->input_gradient(microbatch, std::move(gradient));
    last_ = Clock::now();
    return output;
  }
  [[nodiscard]] Parcel evict(int microbatch) override { return stage_->evict(microbatch); }
  void load(int microbatch, Parcel parcel) override { stage_->load(microbatch, std::move(parcel)); }
  void weight_gradient(int microbatch) override {
    stage_->weight_gradient(microbatch);
    last_ = Clock::now();
  }
  [[nodiscard]] std::vector<DeviceFloats> gradients() override { return stage_->gradients(); }
  [[nodiscard]] DeviceFloats tied_gradient() override { return stage_->tied_gradient(); }
  [[nodiscard]] std::vector<StoredWeight> stored_weights() override { return stage_->stored_weights(); }
  void optimizer_step() override {
    stage_->optimizer_step();
    last_ = Clock::now();
  }
  void end_step() override { stage_->end_step(); }
  [[nodiscard]] double loss() const override { return stage_->loss(); }

 private:
  std::unique_ptr<Stage> stage_;
  Clock::time_point& last_;
};

// Hands on what it gets: whatever a step takes then is the runner's and the transport's.
class NoWork final : public Stage {
 public:
  NoWork(Device& device, std::size_t bytes) : value_(device.allocate(bytes)) {}
  void begin_step(std::int64_t /*step*/) override {}
  [[nodiscard]] Payload forward(int /*microbatch*/, Payload input) override {
    return input.data == nullptr ? value_ : std::move(input);
  }
  void recompute(int /*microbatch*/) override {}
  [[nodiscard]] Payload input_gradient(int microbatch, Payload gradient) override {
    return forward(microbatch, std::move(gradient));
  }
  [[nodiscard]] Parcel evict(int /*microbatch*/) override { return {}; }
  void load(int /*microbatch*/, Parcel /*parcel*/) override {}
  void weight_gradient(int /*microbatch*/) override {}
  [[nodiscard]] std::vector<DeviceFloats> gradients() override { return {}; }
  [[nodiscard]] DeviceFloats tied_gradient() override { return {}; }
  [[nodiscard]] std::vector<StoredWeight> stored_weights() override { return {}; }
  void optimizer_step() override {}
  void end_step() override {}
  [[nodiscard]] double loss() const override { return 0; }

 private:
  Payload value_;
};

struct DeviceStep {
  Seconds step;             // from its first action to its last
  Seconds computed;         // by all ranks, together
  Seconds host;             // until the host of the slowest rank had given the device everything
  std::size_t actions = 0;  // of all ranks
  std::size_t most_of_a_rank = 0;
};

using MakeStages = std::function<std::vector<std::unique_ptr<Stage>>(const Schedule& lowered, int rank, Device&)>;

// The last of so many steps.
inline DeviceStep timed_step(const Devices& devices, const Plan& plan, int steps, const MakeStages& make) {
  const Schedule lowered = lower(plan.schedule, {.optimizer = true, .tied_embeddings = trains_tied_table(plan)});
  std::vector<Device*> of_ranks;
  for (const auto& device : devices) of_ranks.push_back(device.get());
  std::vector<RankLog> logs(devices.size());
  std::vector<Clock::time_point> last(devices.size());
  run_on_threads(make_local_device_transports(of_ranks), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    Device& device = *of_ranks[rank];
    begin_rank_thread(transport.rank());
    device.enter();
    std::vector<std::unique_ptr<Stage>> stages;
    for (auto& stage : make(lowered, transport.rank(), device)) {
      stages.push_back(stage ? std::make_unique<NotedStage>(std::move(stage), last[rank]) : nullptr);
    }
    logs[rank] = run_rank(plan, lowered, transport, stages, {.steps = steps, .device = &device});
    transport.barrier(Clock::now() + std::chrono::minutes(1));  // nobody lets go of what another still copies
  });
  DeviceStep measured;
  measured.step = merge_logs(plan, lowered, logs, "test").steps.back().duration;
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    const RankStep& step = logs[rank].steps.back();
    measured.host = std::max(measured.host, seconds_of(last[rank]) - step.start);
    measured.actions += step.events.size();
    measured.most_of_a_rank = std::max(measured.most_of_a_rank, step.events.size());
    for (const Event& event : step.events) {
      const bool computes = is_compute(event.action.kind) || event.action.kind == ActionKind::optimizer_step;
      if (computes) measured.computed += event.end - event.start;
    }
  }
  return measured;
}

// How long the host of a rank is at an action when there is nothing to compute.
inline Seconds overhead_of_an_action(const Devices& devices, Plan plan, int steps) {
  const auto bytes = static_cast<std::size_t>(plan.costs.boundary_bytes.value);
  const DeviceStep measured = timed_step(devices, plan, steps, [&](const Schedule& lowered, int rank, Device& device) {
    std::vector<std::unique_ptr<Stage>> made(stage_slot(lowered, replicas(lowered), 0));
    for (int stage = 0; stage < stages(lowered); ++stage) {
      if (rank_in_replica(lowered, 0, stage) != rank) continue;
      made[stage_slot(lowered, 0, stage)] = std::make_unique<NoWork>(device, bytes);
    }
    return made;
  });
  return measured.host / static_cast<double>(measured.most_of_a_rank);
}

}  // namespace plumb::exec::test
