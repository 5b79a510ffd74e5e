#include "exec/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "exec/evictions.hpp"
#include "exec/watchdog.hpp"

namespace plumb::exec {
namespace {

constexpr Seconds watchdog_grace{5};       // for the transport to notice its own deadline first
constexpr std::size_t recent_actions = 6;  // named in an error

Clock::time_point after(Clock::time_point time, Seconds delay) {
  // Beyond a year nobody waits; the clock's own range ends not much later.
  const std::chrono::duration<double> bounded(std::min(delay.value, 3.0e7));
  return time + std::chrono::duration_cast<Clock::duration>(bounded);
}

// Which boundary value: an activation for `stage` (forward) or an output gradient for it (backward).
struct ValueKey {
  Channel channel;
  std::int32_t stage;
  std::int32_t microbatch;
  auto operator<=>(const ValueKey&) const = default;
};

struct Queue {
  int peer;
  Channel channel;
  auto operator<=>(const Queue&) const = default;
};

Seconds serial_time(const Plan& plan) {
  Seconds microbatch{0};
  Seconds optimizer{0};
  for (const ComputeCost& cost : plan.costs.stages) {
    microbatch += microbatch_time(cost, true);  // whether it is redone or not: an upper bound
    optimizer += cost.optimizer;
  }
  return microbatch * plan.schedule.microbatches + optimizer;
}

class RankRun {
 public:
  RankRun(const Plan& plan, const Schedule& lowered, Transport& transport,
          const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options)
      : plan_(plan),
        lowered_(lowered),
        transport_(transport),
        stages_(stages),
        options_(options),
        rank_(transport.rank()),
        actions_(lowered.actions[static_cast<std::size_t>(transport.rank())]),
        message_bytes_(static_cast<std::size_t>(plan.costs.boundary_bytes.value)),
        waiting_time_(serial_time(plan)) {
    const auto stage = [this](const Action& action) -> Stage& { return stage_of(action); };
    if (evicts(lowered)) evictions_.emplace(lowered, transport, stage, options.memory.moved);
  }

  RankLog run() {
    RankLog log{.rank = rank_, .steps = {}};
    for (int step = 0; step < options_.steps; ++step) {
      const auto number = static_cast<std::int32_t>(options_.first_step + step);
      try {
        log.steps.push_back(run_step(number));
      } catch (const Stopped&) {
        throw;
      } catch (const Error& error) {
        fail(error.problem(), error.hint());
      } catch (const std::exception& error) {
        fail(error.what(), "");
      }
    }
    if (options_.watchdog != nullptr) {
      options_.watchdog->enter(rank_, position_, Clock::now(), Clock::time_point::max());
    }
    return log;
  }

 private:
  RankStep run_step(std::int32_t number) {
    position_ = {.step = number, .action = Position::before};
    values_.clear();
    tied_added_ = false;
    step_ = {};
    step_.events.reserve(actions_.size());
    const Bytes received_before = transport_.received_bytes();
    mark(Clock::now(), waiting_time_);
    for (const auto& stage : stages_) {
      if (stage) stage->begin_step(number);
    }
    if (options_.memory.reset_peak) options_.memory.reset_peak(rank_);
    announce_receives();
    if (evictions_) evictions_->begin_step(step_.events);
    const Clock::time_point now = Clock::now();
    mark(now, waiting_time_);
    transport_.barrier(deadline(now, waiting_time_));
    step_.start = seconds_of(Clock::now());
    for (std::size_t index = 0; index < actions_.size(); ++index) {
      position_.action = static_cast<std::int32_t>(index);
      perform(actions_[index]);
    }
    end_step();
    step_.received_bytes = transport_.received_bytes() - received_before;
    return std::move(step_);
  }

  void end_step() {
    position_.action = Position::after;
    mark(Clock::now(), waiting_time_);
    if (!values_.empty()) {
      const ValueKey& key = values_.begin()->first;
      throw RunError("", fmt::format("{} values were never used, the first for stage {}, microbatch {}", values_.size(),
                                     key.stage, key.microbatch));
    }
    if (evictions_) evictions_->end_step();
    for (const auto& stage : stages_) {
      if (stage) stage->end_step();
    }
    for (int replica = 0; replica < replicas(lowered_); ++replica) {
      const auto& last = stages_[stage_slot(lowered_, replica, stages(lowered_) - 1)];
      if (last) step_.loss += last->loss();
    }
    if (options_.memory.peak) step_.peak_bytes = options_.memory.peak(rank_);
  }

  void perform(const Action& action) {
    if (evictions_) await_evictions(action);
    const Clock::time_point start = Clock::now();
    mark(start, predicted(action));
    Event event{.action = action, .rank = rank_, .start = seconds_of(start), .end = {}, .waited = {}, .bytes = {}};
    if (is_receive(action.kind)) {
      receive(action, event, start);
    } else if (is_eviction(action.kind)) {
      evictions_->perform(event);
    } else {
      if (is_send(action.kind)) {
        send(action, event);
      } else if (action.kind == ActionKind::reduce_tied) {
        reduce_tied(event, start);
      } else if (action.kind == ActionKind::reduce_gradient) {
        reduce_replicas(action.stage, event, start);
      } else {
        compute(action);
      }
      event.end = seconds_of(Clock::now());
    }
    step_.events.push_back(event);
    if (evictions_) evictions_->take_arrived();
  }

  // Waits, as if at the place of the action that receives it, for what `action` needs.
  void await_evictions(const Action& action) {
    const Position here = position_;
    while (const auto place = evictions_->awaited_before(action)) {
      const Clock::time_point now = Clock::now();
      position_.action = static_cast<std::int32_t>(*place);
      mark(now, waiting_time_);
      evictions_->take_oldest(deadline(now, waiting_time_));
    }
    position_ = here;
  }

  void compute(const Action& action) {
    Stage& stage = action.kind == ActionKind::optimizer_step ? held_stage(action.stage) : stage_of(action);
    const int microbatch = action.microbatch;
    switch (action.kind) {
      case ActionKind::forward:
        hand_on(Channel::forward, action, stage.forward(microbatch, input_of(Channel::forward, action)));
        return;
      case ActionKind::recompute:
        stage.recompute(microbatch);
        return;
      case ActionKind::input_gradient:
        hand_on(Channel::backward, action, stage.input_gradient(microbatch, input_of(Channel::backward, action)));
        return;
      case ActionKind::backward: {
        Payload gradient = stage.input_gradient(microbatch, input_of(Channel::backward, action));
        stage.weight_gradient(microbatch);
        hand_on(Channel::backward, action, std::move(gradient));
        return;
      }
      case ActionKind::weight_gradient:
        stage.weight_gradient(microbatch);
        return;
      case ActionKind::optimizer_step:
        add_tied_gradients_of_this_rank();
        stage.optimizer_step();
        return;
      default:
        throw RunError("", "this kind of action is not executed yet");
    }
  }

  // Value for the action's stage: none at the ends of the pipeline.
  Payload input_of(Channel channel, const Action& action) {
    const int producer = producer_stage(action);
    if (producer < 0 || producer == stages(lowered_)) return {};
    return take({channel, action.stage, action.microbatch});
  }

  // The value's consumer is a stage of this rank, or SEND takes it from here.
  void hand_on(Channel channel, const Action& action, Payload payload) {
    const int consumer = consumer_stage(action);
    if (consumer < 0 || consumer == stages(lowered_)) return;
    put({channel, consumer, action.microbatch}, std::move(payload));
  }

  void send(const Action& action, Event& event) {
    const int consumer = consumer_stage(action);
    const Channel channel = goes_forward(action.kind) ? Channel::forward : Channel::backward;
    Payload payload = take({channel, consumer, action.microbatch});
    event.peer = rank_of(consumer, action.microbatch);
    event.bytes = {static_cast<std::int64_t>(payload.size)};
    transport_.send(event.peer, channel, std::move(payload));
  }

  void receive(const Action& action, Event& event, Clock::time_point start) {
    const Queue queue = queue_of(action);
    Received received = transport_.receive(queue.peer, queue.channel, deadline(start, waiting_time_));
    if (options_.memory.moved && received.payload.data != nullptr) options_.memory.moved(received.payload.data, rank_);
    event.peer = queue.peer;
    event.bytes = {static_cast<std::int64_t>(received.payload.size)};
    event.end = seconds_of(received.arrived);
    put({queue.channel, action.stage, action.microbatch}, std::move(received.payload));
  }

  void reduce_tied(Event& event, Clock::time_point start) {
    const int first = lowered_.rank_of_stage.front();
    const int last = lowered_.rank_of_stage.back();
    const int mine = rank_ == first ? 0 : stages(lowered_) - 1;
    const std::span<float> gradient = held_stage(mine).tied_gradient();
    const std::vector<int> group{std::min(first, last), std::max(first, last)};
    transport_.all_reduce(group, gradient, deadline(start, waiting_time_));
    event.peer = rank_ == first ? last : first;
    event.bytes = {static_cast<std::int64_t>(gradient.size_bytes())};
  }

  // Each weight's gradient on its own, as it lies; in the same order on both ranks.
  void reduce_replicas(int stage, Event& event, Clock::time_point start) {
    add_tied_gradients_of_this_rank();
    const int first = rank_in_replica(lowered_, 0, stage);
    const int second = rank_in_replica(lowered_, 1, stage);
    const std::vector<int> group{std::min(first, second), std::max(first, second)};
    event.peer = rank_ == first ? second : first;
    for (const std::span<float> gradient : held_stage(stage).gradients()) {
      transport_.all_reduce(group, gradient, deadline(start, waiting_time_));
      event.bytes += Bytes{static_cast<std::int64_t>(gradient.size_bytes())};
    }
  }

  // Where one rank holds both copies of a tied table, no message is needed, only the sum.
  void add_tied_gradients_of_this_rank() {
    const int last = stages(lowered_) - 1;
    if (tied_added_ || last == 0 || !holds(lowered_, rank_, 0) || !holds(lowered_, rank_, last)) return;
    tied_added_ = true;
    const std::span<float> a = held_stage(0).tied_gradient();
    const std::span<float> b = held_stage(last).tied_gradient();
    if (a.size() != b.size()) throw RunError("", "the copies of the tied embedding differ in size");
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] = a[i] + b[i];
  }

  void announce_receives() {
    std::map<Queue, int> messages;
    for (const Action& action : actions_) {
      if (is_receive(action.kind)) ++messages[queue_of(action)];
    }
    for (const auto& [queue, count] : messages) transport_.expect(queue.peer, queue.channel, message_bytes_, count);
  }

  [[nodiscard]] Queue queue_of(const Action& receive) const {
    return {rank_of(producer_stage(receive), receive.microbatch),
            goes_forward(receive.kind) ? Channel::forward : Channel::backward};
  }

  void put(const ValueKey& key, Payload payload) {
    if (!values_.emplace(key, std::move(payload)).second) {
      throw RunError("",
                     fmt::format("a value for stage {}, microbatch {} is already there", key.stage, key.microbatch));
    }
  }

  Payload take(const ValueKey& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      throw RunError("", fmt::format("the {} for stage {}, microbatch {} is not there",
                                     key.channel == Channel::forward ? "activation" : "output gradient", key.stage,
                                     key.microbatch));
    }
    Payload payload = std::move(found->second);
    values_.erase(found);
    return payload;
  }

  [[nodiscard]] int rank_of(int stage, int microbatch) const {
    if (stage < 0 || stage >= stages(lowered_)) throw RunError("", fmt::format("there is no stage {}", stage));
    return plumb::rank_of(lowered_, stage, microbatch);
  }

  // In the replica that the microbatch goes through.
  [[nodiscard]] Stage& stage_of(const Action& action) const {
    return stage_in(replica_of(lowered_, action.microbatch), action.stage);
  }

  // In the replica whose copy this rank has.
  [[nodiscard]] Stage& held_stage(int stage) const {
    const bool second = replicas(lowered_) == 2 && rank_in_replica(lowered_, 1, stage) == rank_;
    return stage_in(second ? 1 : 0, stage);
  }

  [[nodiscard]] Stage& stage_in(int replica, int stage) const {
    const bool here = stage >= 0 && stage < stages(lowered_) && rank_in_replica(lowered_, replica, stage) == rank_;
    if (!here || !stages_[stage_slot(lowered_, replica, stage)]) {
      throw RunError("", fmt::format("stage {} is not on this rank", stage));
    }
    return *stages_[stage_slot(lowered_, replica, stage)];
  }

  [[nodiscard]] Seconds predicted(const Action& action) const {
    if (!is_compute(action.kind) && action.kind != ActionKind::optimizer_step) return waiting_time_;
    const ComputeCost& cost = plan_.costs.stages[static_cast<std::size_t>(action.stage)];
    return action.kind == ActionKind::optimizer_step ? cost.optimizer : microbatch_time(cost, false);
  }

  [[nodiscard]] Clock::time_point deadline(Clock::time_point now, Seconds predicted) const {
    return after(now, std::max(options_.deadline_floor, predicted * options_.deadline_factor));
  }

  void mark(Clock::time_point now, Seconds predicted) const {
    if (options_.watchdog == nullptr) return;
    options_.watchdog->enter(rank_, position_, now, after(deadline(now, predicted), watchdog_grace));
  }

  [[nodiscard]] std::string recent() const {
    std::string text;
    const std::size_t count = std::min(recent_actions, step_.events.size());
    for (std::size_t i = step_.events.size() - count; i < step_.events.size(); ++i) {
      const Event& event = step_.events[i];
      text += fmt::format("{}{} ({:.2f} ms)", text.empty() ? "before it: " : ", ", to_string(event.action),
                          std::max(0.0, (event.end - event.start).value) * 1e3);
    }
    return text;
  }

  [[noreturn]] void fail(const std::string& problem, const std::string& hint) const {
    const std::string where = fmt::format("rank {}, {}", rank_, describe(position_, lowered_, rank_));
    const std::string before = recent();
    const std::string separator = hint.empty() || before.empty() ? "" : "; ";
    transport_.abort(where + ": " + problem);
    throw RunError(where, problem, hint + separator + before);
  }

  const Plan& plan_;
  const Schedule& lowered_;
  Transport& transport_;
  const std::vector<std::unique_ptr<Stage>>& stages_;
  const RunOptions& options_;
  int rank_;
  const std::vector<Action>& actions_;
  std::size_t message_bytes_;
  Seconds waiting_time_;  // a peer may have the whole step's work to do before it answers

  Position position_;
  RankStep step_;
  std::map<ValueKey, Payload> values_;  // received or produced here, not consumed yet
  std::optional<Evictions> evictions_;  // if there are any
  bool tied_added_ = false;
};

}  // namespace

RankLog run_rank(const Plan& plan, const Schedule& lowered, Transport& transport,
                 const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options) {
  return RankRun(plan, lowered, transport, stages, options).run();
}

}  // namespace plumb::exec
