// A stage that makes its action's collectives with its groups around another stage's work, and checks what comes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "exec/stage/stage.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"
#include "tests/exec/device/async_device.hpp"

namespace plumb::exec::test {

// On the compute stream of an asynchronous device, in the order in which stages on LibTorch do it. Memory is let go of
// as soon as all has been put there.
class MovingStage final : public Stage {
 public:
  using Change = std::function<void(ActionKind, GroupCalls&)>;
  using Complete = std::function<void(DeviceFloats)>;
  // Stands between the other stage and who hears of its gradients: for the n-th of a step.
  using Report = std::function<void(int n, DeviceFloats gradient, const Complete& complete)>;

  // `calls`: of the rank; both must outlive this. `wrong` counts elements that are not what they must be. `change`
  // makes an action do something else.
  MovingStage(std::unique_ptr<Stage> stage, std::int32_t number, const RankCalls& calls, Transport& transport,
              AsyncDevice& device, std::shared_ptr<std::atomic<int>> wrong, Change change = {})
      : stage_(std::move(stage)),
        number_(number),
        calls_(calls),
        transport_(transport),
        device_(device),
        wrong_(std::move(wrong)),
        change_(std::move(change)) {}

  void begin_step(std::int64_t step) override {
    summed_ = false;
    stage_->begin_step(step);
  }
  [[nodiscard]] Payload forward(int microbatch, Payload input) override {
    return around(ActionKind::forward, [&] { return stage_->forward(microbatch, std::move(input)); });
  }
  void recompute(int microbatch) override {
    (void)around(ActionKind::recompute, [&] {
      stage_->recompute(microbatch);
      return Payload();
    });
  }
  [[nodiscard]] Payload input_gradient(int microbatch, Payload gradient) override {
    return around(ActionKind::input_gradient, [&] { return stage_->input_gradient(microbatch, std::move(gradient)); });
  }
  void weight_gradient(int microbatch) override {
    (void)around(ActionKind::weight_gradient, [&] {
      stage_->weight_gradient(microbatch);
      return Payload();
    });
  }
  void find_squares() override { stage_->find_squares(); }
  [[nodiscard]] kernels::ExactSquares squares() const override { return stage_->squares(); }
  void scale_gradients(double scale) override { stage_->scale_gradients(scale); }
  [[nodiscard]] Payload backward(int microbatch, Payload gradient) override {
    return around(ActionKind::backward, [&] { return stage_->backward(microbatch, std::move(gradient)); });
  }
  void report_gradients(Complete complete) override {
    if (!report_) return stage_->report_gradients(std::move(complete));
    stage_->report_gradients([this, complete = std::move(complete), n = 0](DeviceFloats gradient) mutable {
      report_(n++, gradient, complete);
    });
  }
  void change_reports(Report report) { report_ = std::move(report); }
  [[nodiscard]] Parcel evict(int microbatch) override { return stage_->evict(microbatch); }
  void load(int microbatch, Parcel parcel) override { stage_->load(microbatch, std::move(parcel)); }
  [[nodiscard]] std::vector<DeviceFloats> gradients() override {
    sum_once(ActionKind::reduce_gradient);
    return stage_->gradients();
  }
  [[nodiscard]] DeviceFloats tied_gradient() override { return stage_->tied_gradient(); }
  [[nodiscard]] std::vector<StoredWeight> stored_weights() override { return stage_->stored_weights(); }
  void optimizer_step() override {
    sum_once(ActionKind::optimizer_step);
    stage_->optimizer_step();
  }
  void end_step() override { stage_->end_step(); }
  [[nodiscard]] double loss() const override { return stage_->loss(); }

 private:
  [[nodiscard]] GroupCalls of(ActionKind kind) const;
  // The first half of the action's calls, the work, and the others.
  [[nodiscard]] Payload around(ActionKind kind, const std::function<Payload()>& work);
  void sum_once(ActionKind kind);
  void make(const GroupCall& call);

  std::unique_ptr<Stage> stage_;
  std::int32_t number_;
  const RankCalls& calls_;
  Transport& transport_;
  AsyncDevice& device_;
  std::shared_ptr<std::atomic<int>> wrong_;
  Change change_;
  Report report_;
  bool summed_ = false;
  int salt_ = 0;  // alike on all ranks of a group
};

}  // namespace plumb::exec::test
