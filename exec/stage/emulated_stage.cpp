#include "exec/stage/emulated_stage.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::exec {
namespace {

constexpr auto part_of_wait = std::chrono::milliseconds(50);

// How far a microbatch has come through the stage.
enum class Progress : std::uint8_t { none, input_kept, activations_kept, evicted, weight_work_kept, done };

const char* text(Progress progress) {
  switch (progress) {
    case Progress::none:
      return "before its forward";
    case Progress::input_kept:
      return "forwarded, not recomputed";
    case Progress::activations_kept:
      return "forwarded";
    case Progress::evicted:
      return "evicted";
    case Progress::weight_work_kept:
      return "without its weight gradient";
    case Progress::done:
      return "done";
  }
  return "";
}

struct Shape {
  int stage = 0;
  bool first = false;
  bool last = false;
  bool recomputed = false;
  std::vector<Bytes> boundary_bytes = {};  // of each slice, or of all
  std::size_t tied_values = 0;
  std::size_t gradient_values = 0;  // to be summed over replicas
  std::size_t own_values = 0;       // and of these the own part over the copies of HSDP
  std::size_t weight_bytes = 0;     // to be gathered from them, where they share out the states
  std::size_t element_bytes = 1;
  std::vector<BlockGradients> gradients = {};  // in the order of the backward
  int first_microbatch = 0;                    // of those that go through this replica
  int end_microbatch = 0;
};

// Gradients are fp32.
std::size_t values_of(Bytes amount) { return static_cast<std::size_t>(amount.value) / sizeof(float); }

class EmulatedStage : public Stage {
 public:
  EmulatedStage(const ComputeCost& cost, const Shape& shape, Transport* run)
      : cost_(cost),
        shape_(shape),
        run_(run),
        progress_(static_cast<std::size_t>(shape.end_microbatch)),
        forward_shares_(static_cast<std::size_t>(shape.end_microbatch), 1),
        backward_shares_(static_cast<std::size_t>(shape.end_microbatch), 1),
        tied_(shape.tied_values),
        gradient_(shape.gradient_values),
        own_(shape.own_values),
        weights_(shape.weight_bytes) {}

  // In an overlapped pair of this microbatch's forward, or backward, it takes `share` of its time alone.
  void set_share(ActionKind kind, int microbatch, double share) {
    (kind == ActionKind::forward ? forward_shares_ : backward_shares_).at(static_cast<std::size_t>(microbatch)) = share;
  }

  void begin_step(std::int64_t /*step*/) override {
    // Linux rounds sleeps up by 50 µs unless asked not to (prctl(2), PR_SET_TIMERSLACK, in ns); per thread.
    ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    progress_.assign(static_cast<std::size_t>(shape_.end_microbatch), Progress::none);
    reported_ = 0;
  }

  Payload forward(int microbatch, Payload input) override {
    const auto end =
        Clock::now() + duration(times(microbatch).forward * forward_shares_.at(static_cast<std::size_t>(microbatch)));
    advance(microbatch, Progress::none, shape_.recomputed ? Progress::input_kept : Progress::activations_kept);
    require_size(input, microbatch, !shape_.first);
    Payload output = boundary(microbatch, !shape_.last);
    wait_until(end);
    return output;
  }

  void recompute(int microbatch) override {
    const auto end = Clock::now() + duration(times(microbatch).forward);
    advance(microbatch, Progress::input_kept, Progress::activations_kept);
    wait_until(end);
  }

  Payload input_gradient(int microbatch, Payload output_gradient) override {
    const auto end = Clock::now() + duration(times(microbatch).input_gradient *
                                             backward_shares_.at(static_cast<std::size_t>(microbatch)));
    advance(microbatch, Progress::activations_kept, Progress::weight_work_kept);
    require_size(output_gradient, microbatch, !shape_.last);
    Payload gradient = boundary(microbatch, !shape_.first);
    wait_until(end);
    return gradient;
  }

  // Its time is that of I and of W, in which blocks complete their gradients one after the other.
  Payload backward(int microbatch, Payload output_gradient) override {
    const double share = backward_shares_.at(static_cast<std::size_t>(microbatch));
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::activations_kept, Progress::done);
    require_size(output_gradient, microbatch, !shape_.last);
    Payload gradient = boundary(microbatch, !shape_.first);
    const ActionTimes own = times(microbatch);
    wait_by_block(begin, backward_time(own) * share);
    return gradient;
  }

  Parcel evict(int microbatch) override {
    advance(microbatch, Progress::activations_kept, Progress::evicted);
    return {plain_memory(static_cast<std::size_t>(cost_.kept_bytes.value))};
  }

  void load(int microbatch, Parcel parcel) override {
    advance(microbatch, Progress::evicted, Progress::activations_kept);
    if (bytes_of(parcel) == cost_.kept_bytes) return;
    throw RunError("", fmt::format("stage {}, microbatch {} got {} bytes back, evicted {}", shape_.stage, microbatch,
                                   bytes_of(parcel).value, cost_.kept_bytes.value));
  }

  void weight_gradient(int microbatch) override {
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::weight_work_kept, Progress::done);
    wait_by_block(begin, times(microbatch).weight_gradient * backward_shares_.at(static_cast<std::size_t>(microbatch)));
  }

  void report_gradients(std::function<void(DeviceFloats)> complete) override { complete_ = std::move(complete); }

  std::vector<DeviceFloats> gradients() override {
    return {{gradient_.data() + reported_, gradient_.size() - reported_}};
  }

  DeviceFloats tied_gradient() override { return {tied_.data(), tied_.size()}; }

  std::vector<DeviceFloats> own_gradients() override { return {{own_.data(), own_.size()}}; }

  std::vector<StoredWeight> stored_weights() override { return {{weights_, shape_.element_bytes}}; }

  void optimizer_step() override { wait_until(Clock::now() + duration(cost_.optimizer)); }

  void end_step() override {
    for (int microbatch = shape_.first_microbatch; microbatch < shape_.end_microbatch; ++microbatch) {
      const Progress progress = progress_[static_cast<std::size_t>(microbatch)];
      if (progress == Progress::done) continue;
      throw RunError("", fmt::format("stage {}, microbatch {} is left {} at the end of the step", shape_.stage,
                                     microbatch, text(progress)));
    }
  }

  double loss() const override { return 0; }

 private:
  static Clock::duration duration(Seconds time) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time.value));
  }

  // In parts, between which it learns that the run is over: a predicted time may be hours.
  void wait_until(Clock::time_point end) const {
    while (run_ != nullptr && end - Clock::now() > part_of_wait) {
      std::this_thread::sleep_for(part_of_wait);
      run_->poll();
    }
    std::this_thread::sleep_until(end);
  }

  [[nodiscard]] ActionTimes times(int microbatch) const { return times_of(cost_, microbatch); }

  // So long from `begin`; where it is the step's last, each block's gradients are reported when its share has passed.
  void wait_by_block(Clock::time_point begin, Seconds time) {
    if (complete_) {
      Seconds all;
      for (const BlockGradients& block : shape_.gradients) all += block.backward;
      Seconds passed;
      for (const BlockGradients& block : shape_.gradients) {
        passed += block.backward;
        wait_until(begin + duration(all.value > 0 ? time * (passed / all) : time));
        const std::size_t values = std::min(values_of(block.bytes), gradient_.size() - reported_);
        complete_({gradient_.data() + reported_, values});
        reported_ += values;
      }
      complete_ = nullptr;
    }
    wait_until(begin + duration(time));
  }

  void advance(int microbatch, Progress from, Progress to) {
    Progress& progress = progress_.at(static_cast<std::size_t>(microbatch));
    if (progress != from) {
      throw RunError("", fmt::format("stage {}, microbatch {} is {}, expected it {}", shape_.stage, microbatch,
                                     text(progress), text(from)));
    }
    progress = to;
  }

  [[nodiscard]] std::size_t boundary_bytes(int microbatch) const {
    return static_cast<std::size_t>(of_slice(shape_.boundary_bytes, microbatch).value);
  }

  void require_size(const Payload& payload, int microbatch, bool expected) const {
    const std::size_t bytes = expected ? boundary_bytes(microbatch) : 0;
    if (payload.size == bytes) return;
    throw RunError("", fmt::format("stage {} got {} bytes, expected {}", shape_.stage, payload.size, bytes));
  }

  // What the bytes are does not matter, and touching them would cost time that nobody predicted.
  [[nodiscard]] Payload boundary(int microbatch, bool wanted) const {
    return wanted ? plain_memory(boundary_bytes(microbatch)) : Payload{};
  }

  ComputeCost cost_;
  Shape shape_;
  Transport* run_;  // none: nobody can end it
  std::vector<Progress> progress_;
  std::vector<double> forward_shares_;  // of the time alone, by microbatch: below 1 in an overlapped pair
  std::vector<double> backward_shares_;
  std::vector<float> tied_;
  std::vector<float> gradient_;
  std::vector<float> own_;
  std::vector<std::byte> weights_;
  std::size_t reported_ = 0;  // of these, from the first on
  std::function<void(DeviceFloats)> complete_;
};

// As the schedule's graph has it.
void set_shares(const Plan& plan, const OverlappedPair& pair, EmulatedStage& stage, const Action& action) {
  const auto time = [&](const Action& of) {
    return compute_time(plan.costs.stages[static_cast<std::size_t>(of.stage)], of);
  };
  stage.set_share(action.kind, action.microbatch,
                  share_in_pair(time(pair.first), time(pair.second), plan.costs.hidden_in_pairs));
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_emulated_stages(const Plan& plan, int rank, Transport* run) {
  const Schedule& schedule = plan.schedule;
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  const bool sums = replicas(schedule) == 2 || plan.layout.data.degree > 1;
  const bool beside = plan.layout.data.degree > 1 && plan.software.data_overlap;
  const auto gradients = beside ? gradients_in_backward(plan) : std::vector<std::vector<BlockGradients>>();
  const int count = stages(schedule);
  const std::vector<bool> recomputed = recomputed_stages(schedule);
  std::vector<std::unique_ptr<Stage>> made(stage_slot(schedule, replicas(schedule), 0));
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    for (int stage = 0; stage < count; ++stage) {
      if (rank_in_replica(schedule, replica, stage) != place) continue;
      const auto index = static_cast<std::size_t>(stage);
      const bool end = stage == 0 || stage == count - 1;
      const ComputeCost& cost = plan.costs.stages[index];
      const Shape shape{
          .stage = stage,
          .first = stage == 0,
          .last = stage == count - 1,
          .recomputed = recomputed[index],
          .boundary_bytes = message_bytes(plan.costs),
          .tied_values = end ? values_of(plan.costs.tied_bytes) : 0,
          .gradient_values = sums ? values_of(reduced_bytes(cost)) : 0,
          .own_values = values_of(cost.data_moves.replicated),
          .weight_bytes = static_cast<std::size_t>(cost.gathered_bytes.value),
          .element_bytes = static_cast<std::size_t>(element_bytes(plan.training.precision)),
          .gradients = beside ? gradients[index] : std::vector<BlockGradients>(),
          .first_microbatch = replica == 0 ? 0 : schedule.microbatches / 2,
          .end_microbatch = replica + 1 == replicas(schedule) ? schedule.microbatches : schedule.microbatches / 2};
      auto emulated = std::make_unique<EmulatedStage>(cost, shape, run);
      for (const OverlappedPair& pair : schedule.overlapped) {
        for (const Action& action : {pair.first, pair.second}) {
          const bool here = action.stage == stage && replica_of(schedule, action.microbatch) == replica;
          if (here) set_shares(plan, pair, *emulated, action);
        }
      }
      made[stage_slot(schedule, replica, stage)] = std::move(emulated);
    }
  }
  return made;
}

}  // namespace plumb::exec
