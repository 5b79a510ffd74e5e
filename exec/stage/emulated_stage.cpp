#include "exec/stage/emulated_stage.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/slices.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/emulation/emulated_group.hpp"
#include "exec/emulation/polled_sleep.hpp"

namespace plumb::exec {
namespace {

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

// What actions of a stage read and make besides numbers of tokens and a loss: hidden states, or their gradient.
struct Ends {
  bool reads = true;              // F its input,
  bool makes = true;              // and its output;
  bool reads_gradient = true;     // I or B that of the output,
  bool makes_gradient = true;     // and that of the input
  bool makes_statistics = false;  // F of a head's part with two barriers, instead;
  bool makes_summand = false;     // with one I makes these, and a summand is made when they are joined
  std::size_t statistics = 0;     // bytes
};

struct Shape {
  int stage = 0;
  Ends ends = {};
  bool recomputed = false;
  std::vector<Bytes> boundary_bytes = {};  // of each slice, or of all
  std::size_t tied_values = 0;
  std::size_t gradient_values = 0;  // to be summed over replicas
  std::size_t own_values = 0;       // and of these the own part over the copies of HSDP
  std::size_t weight_bytes = 0;     // to be gathered from them, where they share out the states
  std::size_t element_bytes = 1;
  std::vector<BlockGradients> gradients = {};  // in the order of the backward
  std::size_t bucket_values = 1;               // that are summed as one where they are reported
  int first_microbatch = 0;                    // of those that go through this replica
  int end_microbatch = 0;
};

// Gradients, or a size alone where nobody touches them.
class Values {
 public:
  Values(std::size_t size, GradientMemory memory) : memory_(memory == GradientMemory::held ? size : 0), size_(size) {}

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] DeviceFloats all() { return from(0, size_); }
  [[nodiscard]] DeviceFloats from(std::size_t first, std::size_t count) {
    return {memory_.empty() ? nullptr : memory_.data() + first, count};
  }

 private:
  std::vector<float> memory_;
  std::size_t size_;
};

// Gradients are fp32.
std::size_t values_of(Bytes amount) { return static_cast<std::size_t>(amount.value) / sizeof(float); }

// The tensor group of a rank whose actions go part by part.
struct GroupParts {
  EmulatedParts parts;
  EmulatedGroup group;
};

class EmulatedStage : public Stage {
 public:
  // `parts`, where its actions go so; else null.
  EmulatedStage(const ComputeCost& cost, const Shape& shape, const Emulation& emulation,
                std::shared_ptr<GroupParts> parts)
      : cost_(cost),
        shape_(shape),
        parts_(std::move(parts)),
        run_(emulation.run),
        progress_(static_cast<std::size_t>(shape.end_microbatch)),
        forward_shares_(static_cast<std::size_t>(shape.end_microbatch), 1),
        backward_shares_(static_cast<std::size_t>(shape.end_microbatch), 1),
        tied_(shape.tied_values, emulation.gradients),
        gradient_(shape.gradient_values, emulation.gradients),
        own_(shape.own_values, emulation.gradients),
        weights_(emulation.gradients == GradientMemory::held ? shape.weight_bytes : 0) {}

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
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::none, shape_.recomputed ? Progress::input_kept : Progress::activations_kept);
    require_size(input, microbatch, shape_.ends.reads);
    Payload output = shape_.ends.makes_statistics ? statistics() : boundary(microbatch, shape_.ends.makes);
    pass(begin, ActionKind::forward, times(microbatch).forward,
         forward_shares_.at(static_cast<std::size_t>(microbatch)));
    return output;
  }

  void recompute(int microbatch) override {
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::input_kept, Progress::activations_kept);
    pass(begin, ActionKind::recompute, times(microbatch).forward, 1);
  }

  Payload input_gradient(int microbatch, Payload output_gradient) override {
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::activations_kept, Progress::weight_work_kept);
    require_size(output_gradient, microbatch, shape_.ends.reads_gradient);
    // Of a head's part with one barrier the summand is made when its statistics are joined.
    Payload gradient = shape_.ends.makes_summand ? statistics() : boundary(microbatch, shape_.ends.makes_gradient);
    pass(begin, ActionKind::input_gradient, times(microbatch).input_gradient,
         backward_shares_.at(static_cast<std::size_t>(microbatch)));
    return gradient;
  }

  // Its time is that of I and of W, in which blocks complete their gradients one after the other.
  Payload backward(int microbatch, Payload output_gradient) override {
    const double share = backward_shares_.at(static_cast<std::size_t>(microbatch));
    const Clock::time_point begin = Clock::now();
    advance(microbatch, Progress::activations_kept, Progress::done);
    require_size(output_gradient, microbatch, shape_.ends.reads_gradient);
    Payload gradient = boundary(microbatch, shape_.ends.makes_gradient);
    const ActionTimes own = times(microbatch);
    pass(begin, ActionKind::backward, backward_time(own), share);
    return gradient;
  }

  // Predictions have what the summand takes in the time of its sum.
  Payload join_statistics(int microbatch, std::span<const Payload> /*of_parts*/) override {
    return boundary(microbatch, shape_.ends.makes_summand);
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
    pass(begin, ActionKind::weight_gradient, times(microbatch).weight_gradient,
         backward_shares_.at(static_cast<std::size_t>(microbatch)));
  }

  void report_gradients(std::function<void(DeviceFloats)> complete) override { complete_ = std::move(complete); }

  std::vector<DeviceFloats> gradients() override { return {gradient_.from(reported_, gradient_.size() - reported_)}; }

  DeviceFloats tied_gradient() override { return tied_.all(); }

  std::vector<DeviceFloats> own_gradients() override { return {own_.all()}; }

  std::vector<StoredWeight> stored_weights() override { return {{weights_, shape_.element_bytes}}; }

  void optimizer_step() override { wait_until(after(Clock::now(), cost_.optimizer)); }

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
  void wait_until(Clock::time_point end) const { sleep_until(end, run_); }

  [[nodiscard]] ActionTimes times(int microbatch) const { return times_of(cost_, microbatch); }

  // An action that takes so long alone, `share` of it here.
  void pass(Clock::time_point begin, ActionKind kind, Seconds time, double share) {
    const bool reports = complete_ && (kind == ActionKind::backward || kind == ActionKind::weight_gradient);
    if (parts_ && !reports && share == 1) {
      parts_->group.run(parts_->parts.of(shape_.stage, kind), parts_->parts.details.collectives, begin);
    } else if (reports) {
      wait_by_block(begin, time * share);
    } else {
      wait_until(after(begin, time * share));
    }
  }

  // So long from `begin`; where it is the step's last, each block's gradients are reported when its share has passed.
  void wait_by_block(Clock::time_point begin, Seconds time) {
    if (complete_) {
      Seconds all;
      for (const BlockGradients& block : shape_.gradients) all += block.backward;
      Seconds passed;
      for (const BlockGradients& block : shape_.gradients) {
        passed += block.backward;
        wait_until(after(begin, all.value > 0 ? time * (passed / all) : time));
        report(std::min(values_of(block.bytes), gradient_.size() - reported_));
      }
      complete_ = nullptr;
    }
    wait_until(after(begin, time));
  }

  // So many more, in parts that fill each bucket to the byte, as predictions have them: of weights nothing is known.
  void report(std::size_t values) {
    for (const std::size_t end = reported_ + values; reported_ < end;) {
      const std::size_t left_in_bucket = shape_.bucket_values - reported_ % shape_.bucket_values;
      const std::size_t part = std::min(left_in_bucket, end - reported_);
      complete_(gradient_.from(reported_, part));
      reported_ += part;
    }
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

  [[nodiscard]] Payload statistics() const { return plain_memory(shape_.ends.statistics); }

  // What the bytes are does not matter, and touching them would cost time that nobody predicted.
  [[nodiscard]] Payload boundary(int microbatch, bool wanted) const {
    return wanted ? plain_memory(boundary_bytes(microbatch)) : Payload{};
  }

  ComputeCost cost_;
  Shape shape_;
  std::shared_ptr<GroupParts> parts_;
  Transport* run_;  // none: nobody can end it
  std::vector<Progress> progress_;
  std::vector<double> forward_shares_;  // of the time alone, by microbatch: below 1 in an overlapped pair
  std::vector<double> backward_shares_;
  Values tied_;
  Values gradient_;
  Values own_;
  std::vector<std::byte> weights_;
  std::size_t reported_ = 0;  // of these, from the first on
  std::function<void(DeviceFloats)> complete_;
};

Ends ends_of(const Plan& plan, int stage) {
  const bool first = stage == 0;
  const bool last = stage + 1 == stages(plan.schedule);
  const int barriers = plan.schedule.vocabulary_barriers;
  switch (sort_of_stage(plan.schedule, stage)) {
    case StageSort::head:
      return {.reads = true,
              .makes = false,
              .reads_gradient = false,
              .makes_gradient = barriers == 2,
              .makes_statistics = barriers == 2,
              .makes_summand = barriers == 1,
              .statistics = static_cast<std::size_t>(plan.costs.vocabulary.statistics.bytes.value)};
    case StageSort::embedding:
      return {.reads = false, .makes = true, .reads_gradient = true, .makes_gradient = false};
    case StageSort::layers:
      break;
  }
  if (barriers > 0) return {};
  return {.reads = !first, .makes = !last, .reads_gradient = !last, .makes_gradient = !first};
}

// As the schedule's graph has it.
void set_shares(const Plan& plan, const OverlappedPair& pair, EmulatedStage& stage, const Action& action) {
  const auto time = [&](const Action& of) {
    return compute_time(plan.costs.stages[static_cast<std::size_t>(of.stage)], of);
  };
  stage.set_share(action.kind, action.microbatch,
                  share_in_pair(time(pair.first), time(pair.second), plan.costs.hidden_in_pairs));
}

std::shared_ptr<GroupParts> group_parts(const Plan& plan, int rank, const Emulation& emulation) {
  const TensorLayout& tensor = plan.layout.tensor;
  if (emulation.run == nullptr || !tensor.asynchronous || tensor.degree == 1 || has_stage_data(plan.layout)) return {};
  return std::make_shared<GroupParts>(
      GroupParts{.parts = EmulatedParts(plan),
                 .group = EmulatedGroup(*emulation.run, ranks_over_axes(plan.layout, rank), emulation.patience)});
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_emulated_stages(const Plan& plan, int rank, const Emulation& emulation) {
  const Schedule& schedule = plan.schedule;
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  const bool sums = replicas(schedule) == 2 || plan.layout.data.degree > 1;
  const bool beside = plan.layout.data.degree > 1 && plan.software.data_overlap;
  const auto gradients = beside ? gradients_in_backward(plan) : std::vector<std::vector<BlockGradients>>();
  const Bytes bucket = bucket_bytes(plan.software, static_cast<int>(shard_group(plan.layout, rank).size()));
  const int count = all_stages(schedule);
  const std::vector<bool> recomputed = recomputed_stages(schedule);
  const std::shared_ptr<GroupParts> parts = group_parts(plan, rank, emulation);
  std::vector<std::unique_ptr<Stage>> made(stage_slot(schedule, replicas(schedule), 0));
  for (int replica = 0; replica < replicas(schedule); ++replica) {
    for (int stage = 0; stage < count; ++stage) {
      if (rank_in_replica(schedule, replica, stage) != place) continue;
      const auto index = static_cast<std::size_t>(stage);
      const bool end = stage == 0 || stage == stages(schedule) - 1;
      const ComputeCost& cost = plan.costs.stages[index];
      const Shape shape{
          .stage = stage,
          .ends = ends_of(plan, stage),
          .recomputed = recomputed[index],
          .boundary_bytes = message_bytes(plan.costs),
          .tied_values = end ? values_of(plan.costs.tied_bytes) : 0,
          .gradient_values = sums ? values_of(reduced_bytes(cost)) : 0,
          .own_values = values_of(cost.data_moves.replicated),
          .weight_bytes = static_cast<std::size_t>(cost.gathered_bytes.value),
          .element_bytes = static_cast<std::size_t>(element_bytes(plan.training.precision)),
          .gradients = beside ? gradients[index] : std::vector<BlockGradients>(),
          .bucket_values = values_of(bucket + Bytes{sizeof(float) - 1}),  // it is full with no fewer
          .first_microbatch = replica == 0 ? 0 : schedule.microbatches / 2,
          .end_microbatch = replica + 1 == replicas(schedule) ? schedule.microbatches : schedule.microbatches / 2};
      auto emulated = std::make_unique<EmulatedStage>(cost, shape, emulation, parts);
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
