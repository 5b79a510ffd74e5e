#include "exec/run/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/device/host_device.hpp"
#include "exec/device/torch_error.hpp"
#include "exec/emulation/emulated_wire.hpp"
#include "exec/host/pauses.hpp"
#include "exec/run/boundary_values.hpp"
#include "exec/run/evictions.hpp"
#include "exec/run/gradient_clipping.hpp"
#include "exec/run/gradient_sums.hpp"
#include "exec/run/lane_transport.hpp"
#include "exec/run/messages.hpp"
#include "exec/run/patience.hpp"
#include "exec/run/ranges.hpp"
#include "exec/run/rank_stages.hpp"
#include "exec/run/rank_traffic.hpp"
#include "exec/run/step_moments.hpp"
#include "exec/run/vocabulary/part_exchanges.hpp"
#include "exec/run/watchdog.hpp"
#include "exec/run/weight_gathering.hpp"

namespace plumb::exec {
namespace {

constexpr Seconds watchdog_grace{5};  // for the transport to notice its own deadline first
constexpr std::chrono::microseconds device_poll{20};

// Goes through the list of its pipeline rank: `rank_`, peers and `transport_` are the pipeline's. What others hear of
// it names the rank of the layout.
class RankRun {
 public:
  RankRun(const Plan& plan, const Schedule& lowered, Transport& transport,
          const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options)
      : plan_(plan),
        lowered_(lowered),
        transport_(transport, lane_of(plan.layout, transport.rank())),
        options_(options),
        host_(options.device == nullptr ? make_host_device() : nullptr),
        device_(options.device == nullptr ? *host_ : *options.device),
        asynchronous_(device_.is_asynchronous()),
        rank_(transport_.rank()),
        world_rank_(transport.rank()),
        traffic_(transport, group(plan.layout, world_rank_, MeshAxis::tensor),
                 group(plan.layout, world_rank_, MeshAxis::data)),
        wire_(options.emulated_wire == nullptr ? nullptr
                                               : std::make_unique<EmulatedWire>(*options.emulated_wire, transport)),
        shard_group_(shard_group(plan.layout, world_rank_)),
        stages_(lowered, rank_, stages),
        actions_(lowered.actions.at(static_cast<std::size_t>(rank_))),
        message_bytes_(message_bytes(plan.costs)),
        waiting_time_(serial_time(plan)),
        sums_(plan, actions_, transport_, stages_, device_, wire_.get()) {
    const auto stage = [this](const Action& action) -> Stage& { return stages_.of(action); };
    // On a device what is received is a copy in memory of the rank's own: no bytes change hands.
    if (!asynchronous_ && options.memory.moved) {
      moved_ = [this](const std::byte* data, int to_rank) {
        options_.memory.moved(data, transport_.world_rank(to_rank));
      };
    }
    if (lowered.vocabulary_barriers > 0) {
      exchanges_.emplace(plan, lowered, transport_, stage,
                         options.memory.allocate ? options.memory.allocate : PartExchanges::Allocate(plain_memory));
      exchanges_->beside_waits([this] { sums_.progress(); });
      exchanges_go_on_.emplace(transport, [this] { exchanges_->progress(); });
    }
    if (evicts(lowered)) evictions_.emplace(lowered, transport_, stage, moved_);
    if (evictions_ && asynchronous_) evictions_->on_device(device_.compute(), moments_);
  }

  RankLog run() {
    RankLog log{.rank = world_rank_, .steps = {}};
    for (int step = 0; step < options_.steps; ++step) {
      try {
        log.steps.push_back(run_step(static_cast<std::int32_t>(options_.first_step + step)));
      } catch (const Stopped&) {
        throw;
      } catch (const PastDeadline& error) {
        fail(error.problem() + "; " + longer_deadline, error.hint());
      } catch (const Error& error) {
        fail(error.problem(), error.hint());
      } catch (const std::exception& error) {
        fail(work_error(error), "");
      }
    }
    if (options_.watchdog != nullptr) {
      options_.watchdog->enter(world_rank_, position_, unpaused_now(), Clock::time_point::max());
    }
    return log;
  }

 private:
  RankStep run_step(std::int32_t number) {
    position_ = {.step = number, .action = Position::before};
    values_.clear();
    sums_.begin_step();
    step_ = {};
    step_.events.reserve(actions_.size());
    traffic_.begin_step();
    mark(Clock::now(), waiting_time_);
    for (const auto& stage : stages_.all()) {
      if (stage) stage->begin_step(number);
    }
    if (options_.memory.reset_peak) options_.memory.reset_peak(world_rank_);
    if (asynchronous_) {
      moments_.begin_step(actions_.size());
      if (options_.launches != nullptr) transport_.begin_step(*options_.launches, transport_.lane());
      device_.align_clock();
    }
    announce_receives(lowered_, message_bytes_, asynchronous_ ? options_.arena : nullptr, transport_);
    if (evictions_) evictions_->begin_step(step_.events);
    if (exchanges_) exchanges_->begin_step(step_.events);
    const Clock::time_point now = Clock::now();
    mark(now, waiting_time_);
    transport_.barrier(deadline(now, waiting_time_));
    step_.start = seconds_of(Clock::now());
    for (std::size_t index = 0; index < actions_.size(); ++index) {
      position_.action = static_cast<std::int32_t>(index);
      asynchronous_ ? put_on_device(index) : perform(actions_[index]);
    }
    if (asynchronous_) await_device();
    end_step();
    traffic_.end_step(step_);
    for (Event& event : step_.events) {
      event.rank = world_rank_;
      if (event.peer >= 0) event.peer = transport_.world_rank(event.peer);
    }
    return std::move(step_);
  }

  void end_step() {
    position_.action = Position::after;
    mark(Clock::now(), waiting_time_);
    values_.require_none();
    if (evictions_) evictions_->end_step();
    if (exchanges_) exchanges_->end_step();
    for (const auto& stage : stages_.all()) {
      if (stage) stage->end_step();
    }
    step_.loss = stages_.loss();
    if (options_.memory.peak) step_.peak_bytes = options_.memory.peak(world_rank_);
  }

  // No host call from here to await_device waits for the device, but CLIP and what stages may (exec/stage/stage.hpp).
  void put_on_device(std::size_t index) {
    transport_.reach(static_cast<std::int32_t>(index));
    transport_.poll();
    const Range range(actions_[index]);
    perform(actions_[index]);
  }

  void await_device() {
    transport_.reach(static_cast<std::int32_t>(actions_.size()));
    const std::vector<Launched> launched = transport_.end_step();
    moments_.take(launched);
    await_actions(actions_.size());
    transport_.poll();
    moments_.write_times(device_, step_.events);
  }

  // The first so many. The step's deadline is each action's own here: until it ends, while it is the first that has
  // not.
  void await_actions(std::size_t count) {
    Clock::time_point limit;
    for (std::size_t seen = count, ended = 0; (ended = moments_.ended()) < count; seen = ended) {
      transport_.poll();
      const Clock::time_point now = Clock::now();
      if (ended != seen) {
        position_.action = static_cast<std::int32_t>(ended);
        limit = deadline(now, waiting_time_);
        mark(now, waiting_time_);
      } else if (has_passed(limit)) {
        transport_.await(here().end, limit);  // it may know for whom
        throw PastDeadline(RunError("", "has not ended on " + device_.name() + " before the deadline"));
      }
      std::this_thread::sleep_for(device_poll);
    }
  }

  void perform(const Action& action) {
    if (evictions_) await_evictions(action);
    if (exchanges_) {
      mark(Clock::now(), waiting_time_);
      exchanges_->await(action, deadline(Clock::now(), waiting_time_));
    }
    sums_.progress();
    const Clock::time_point start = Clock::now();
    mark(start, own_time(plan_, action).value_or(waiting_time_));
    Event event{.action = action, .rank = rank_, .start = seconds_of(start), .end = {}, .waited = {}, .bytes = {}};
    if (is_receive(action.kind)) {
      receive(action, event, start);
    } else if (is_eviction(action.kind)) {
      evictions_->perform(event);
    } else if (joins_parts(action.kind)) {
      exchanges_->perform(event);
    } else {
      if (is_send(action.kind)) {
        send(action, event);
      } else if (is_reduction(action.kind)) {
        reduce(action, event, deadline(start, waiting_time_));
      } else if (action.kind == ActionKind::unshard) {
        unshard(action, event, deadline(start, waiting_time_));
      } else if (action.kind == ActionKind::clip_gradients) {
        clip();
      } else {
        compute(action);
        stages_.add_host_copies(event);
      }
      event.end = seconds_of(Clock::now());
    }
    step_.events.push_back(event);
    if (options_.memory.held) step_.held.push_back(options_.memory.held(world_rank_));
    if (evictions_) evictions_->take_arrived();
    if (exchanges_) exchanges_->progress();
  }

  void reduce(const Action& action, Event& event, Clock::time_point until) {
    ActionMoments moments;
    const auto sum = [&] { sums_.perform(action, event, moments, until); };
    wire_ ? traffic_.telling(sum) : sum();
    if (asynchronous_) here() = moments;
  }

  void unshard(const Action& action, Event& event, Clock::time_point until) {
    if (wire_) {
      event.bytes = wire_->times().gathered(action.stage);
      return traffic_.telling([&] { wire_->take(wire_->times().gathering(action.stage), shard_group_, until); });
    }
    if (asynchronous_) here().begin = device_.compute().record();
    event.bytes = gather_weights(stages_.held(action.stage), transport_.world(), device_, shard_group_, until);
    if (asynchronous_) here().end = device_.compute().record();
  }

  // The one action for which a host waits within a step: its norm goes from host to host.
  void clip() {
    if (asynchronous_) here().begin = device_.compute().record();
    sums_.add_tied_of_this_rank();
    if (wire_) wire_->wait(after(Clock::now(), wire_->times().clipping()));
    find_squares(stages_, lowered_);
    if (asynchronous_) await_squares();
    traffic_.telling([&] {
      step_.gradient_norm = clip_gradients(stages_, lowered_, plan_.training.gradient_clipping, transport_.world(),
                                           deadline(Clock::now(), waiting_time_));
    });
    if (asynchronous_) here().end = device_.compute().record();
  }

  void await_squares() {
    const Position clipping = position_;
    here().end = device_.compute().record();
    await_actions(static_cast<std::size_t>(clipping.action) + 1);
    position_ = clipping;
    mark(Clock::now(), waiting_time_);
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
    Payload input = input_of(action);
    if (asynchronous_) {
      device_.compute().wait(input.ready);
      if (evictions_) evictions_->wait_for_loaded(action);
      here().begin = device_.compute().record();
      transport_.began(position_.action, here().begin);
    }
    sums_.before(action);
    if (action.kind == ActionKind::optimizer_step) sums_.add_tied_of_this_rank();
    Payload output = stages_.compute(action, std::move(input));
    sums_.behind();
    if (asynchronous_) output.ready = here().end = device_.compute().record();
    hand_on(action, std::move(output));
  }

  // Value for the action's stage: none at the ends of the pipeline.
  Payload input_of(const Action& action) {
    if (exchanges_ && exchanges_->gives_input(action)) return exchanges_->take(action);
    const std::optional<Channel> channel = channel_of(action);
    if (!channel || is_part(lowered_, action.stage)) return {};
    const int producer = producer_stage(action);
    if (producer < 0 || producer == stages(lowered_)) return {};
    return values_.take({*channel, action.stage, action.microbatch});
  }

  // The value's consumer is a stage of this rank, or SEND takes it from here.
  void hand_on(const Action& action, Payload payload) {
    if (exchanges_ && exchanges_->takes_result(action)) return exchanges_->put(action, std::move(payload));
    const std::optional<Channel> channel = channel_of(action);
    if (!channel || is_part(lowered_, action.stage)) return;
    const int consumer = consumer_stage(action);
    if (consumer < 0 || consumer == stages(lowered_)) return;
    values_.put({*channel, consumer, action.microbatch}, std::move(payload));
  }

  void send(const Action& action, Event& event) {
    const PeerChannel queue = peer_channel_of(lowered_, action);
    Payload payload = values_.take({queue.channel, consumer_stage(action), action.microbatch});
    if (asynchronous_) here() = {.begin = payload.ready, .end = payload.ready};
    event.peer = queue.peer;
    event.bytes = {static_cast<std::int64_t>(payload.size)};
    transport_.send(queue.peer, queue.channel, std::move(payload));
  }

  void receive(const Action& action, Event& event, Clock::time_point start) {
    const PeerChannel queue = peer_channel_of(lowered_, action);
    if (asynchronous_) here().begin = device_.compute().record();  // from here on it had nothing else to do
    if (exchanges_) exchanges_->progress_until_message(queue.peer, queue.channel, deadline(start, waiting_time_));
    Received received = transport_.receive(queue.peer, queue.channel, deadline(start, waiting_time_));
    if (moved_ && received.payload.data != nullptr) moved_(received.payload.data, rank_);
    event.peer = queue.peer;
    event.bytes = {static_cast<std::int64_t>(received.payload.size)};
    event.end = seconds_of(received.arrived);
    if (asynchronous_) here().end = received.payload.ready;
    values_.put({queue.channel, action.stage, action.microbatch}, std::move(received.payload));
  }

  [[nodiscard]] ActionMoments& here() { return moments_[static_cast<std::size_t>(position_.action)]; }

  [[nodiscard]] Clock::time_point deadline(Clock::time_point now, Seconds predicted) const {
    return after(unpaused(now), std::max(options_.deadline_floor, predicted * options_.deadline_factor));
  }

  void mark(Clock::time_point now, Seconds predicted) const {
    if (options_.watchdog == nullptr) return;
    options_.watchdog->enter(world_rank_, position_, unpaused(now), after(deadline(now, predicted), watchdog_grace));
  }

  [[noreturn]] void fail(const std::string& problem, const std::string& hint) {
    const std::string where =
        fmt::format("rank {}, {}", world_rank_, describe(position_, lowered_, rank_, options_.warm_up));
    const std::string before = describe_last(step_);
    transport_.abort(where + ": " + problem);
    throw RunError(where, problem, hint + (hint.empty() || before.empty() ? "" : "; ") + before);
  }

  const Plan& plan_;
  const Schedule& lowered_;
  LaneTransport transport_;
  const RunOptions& options_;
  std::unique_ptr<Device> host_;  // if no other is given
  Device& device_;
  bool asynchronous_;
  int rank_;
  int world_rank_;
  RankTraffic traffic_;
  std::unique_ptr<EmulatedWire> wire_;  // if the wire is emulated, too
  std::vector<int> shard_group_;        // of the layout's ranks
  RankStages stages_;
  const std::vector<Action>& actions_;
  std::vector<Bytes> message_bytes_;                               // of each slice, or of all
  std::function<void(const std::byte* data, int to_rank)> moved_;  // as MemoryHooks has it, if anything does
  Seconds waiting_time_;  // a peer may have the whole step's work to do before it answers

  Position position_;
  RankStep step_;
  StepMoments moments_;  // on an asynchronous device
  BoundaryValues values_;
  GradientSums sums_;
  std::optional<Evictions> evictions_;      // if there are any
  std::optional<PartExchanges> exchanges_;  // of a divided vocabulary
  // Ranks of a tensor group wait for each other within actions, and then others for what this one has to exchange.
  std::optional<Meanwhile> exchanges_go_on_;
};

}  // namespace

RankLog run_rank(const Plan& plan, const Schedule& lowered, Transport& transport,
                 const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options) {
  return RankRun(plan, lowered, transport, stages, options).run();
}

}  // namespace plumb::exec
