// Moves bytes between ranks. Knows peers, groups and keep-alives; knows no tensors and no schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/units.hpp"
#include "exec/device/clock.hpp"
#include "exec/device/payload.hpp"
#include "exec/transport/group_bytes.hpp"
#include "exec/transport/launch_plan/launched.hpp"
#include "exec/transport/meanwhile.hpp"
#include "exec/transport/times_within.hpp"

namespace plumb::exec {

struct CollectiveCall;  // exec/transport/launch_plan/communicators.hpp
class ReceiveArena;     // exec/transport/receive_arena.hpp

// The two directions of a pipeline: separate queues, so that an activation never waits behind a gradient. The others go
// from host to host whatever messages move on. `control`: no payload; in one order with barriers and gathers, between
// steps. `collective`: what exec/transport/collectives sends; `sums`: what SumsBeside sends back there; `gathers`: what
// GathersBeside sends; in a lane, these two what exec/run/vocabulary sends.
enum class Channel : std::uint8_t { forward, backward, control, collective, sums, gathers };
[[nodiscard]] constexpr bool between_hosts(Channel channel) { return channel >= Channel::control; }

struct Received {
  Payload payload;
  Clock::time_point arrived;  // when it was there; if the receiver waited, when the wait ended
};

struct ReceivedParcel {
  Parcel parcel;
  Clock::time_point arrived;  // as above
};

// Another rank, or a signal, told this one to stop: the reason is not this rank's own.
class Stopped : public RunError {
 public:
  explicit Stopped(const std::string& reason) : RunError("", reason) {}
};

// Of one rank. Messages of one (peer, channel) arrive in the order in which they were sent; there are no tags.
// Every call throws RunError (peer, channel, bytes, what was expected) on failure, abort or passed deadline.
// One thread uses a Transport; `abort` may be called from any.
class Transport : public CountsGroups, public CountsTimesWithin, public GoesOnMeanwhile {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Hands the payload over and returns at once; its owner is held until the peer has it.
  virtual void send(int peer, Channel channel, Payload payload) = 0;

  // Announces the next `count` messages of a peer, in the order of its sends, each of so many bytes: they can travel
  // before they are needed, as far ahead as the transport has buffers for.
  virtual void expect(int peer, Channel channel, std::size_t bytes, int count) = 0;

  // Whether the oldest expected message is here, so that receiving it takes no time. Where they move on streams never.
  [[nodiscard]] virtual bool has_message(int /*peer*/, Channel /*channel*/) { return false; }

  // Waits for the oldest expected message. A size other than expected is a RunError.
  [[nodiscard]] virtual Received receive(int peer, Channel channel, Clock::time_point deadline) = 0;

  // A way beside the channels, for what is evicted and loaded: parcels of any number of parts and any sizes,
  // which only the sender knows. Hands it over and returns at once.
  virtual void send_parcel(int peer, Parcel parcel) = 0;

  // There is room for so many more parcels of a peer, in the order of its sends. Before that they wait at the sender.
  virtual void expect_parcels(int peer, int count) = 0;

  // Whether the oldest expected parcel is here, so that receiving it takes no time.
  [[nodiscard]] virtual bool has_parcel(int peer) = 0;

  // Waits for the oldest expected parcel. Where messages move on streams, once its last part is ready all are.
  [[nodiscard]] virtual ReceivedParcel receive_parcel(int peer, Clock::time_point deadline) = 0;

  // Element-wise sum over `group` (ascending ranks, this one among them), in place: the same bits on every rank. fp32
  // only. Added as in exec/transport/collectives/sum.hpp; NCCL and ranks that share a device have orders of their own.
  virtual void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) = 0;

  // All ranks leave together.
  virtual void barrier(Clock::time_point deadline) = 0;

  // Control data, not on the clock: rank 0 gets everyone's text by rank, others an empty list.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) = 0;

  // Tells every rank to stop: their pending and later calls throw Stopped with `reason`; the first counts. Never
  // blocks, never throws.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Payload bytes received since the start.
  [[nodiscard]] virtual Bytes received_bytes() const = 0;

  // ---- Where messages move on the streams of a device: NCCL, and ranks that share one. No call waits for the device.
  //
  // There `send` only queues; `receive` returns a payload whose `ready` comes when the bytes are there (`arrived` is
  // the time of the call); `all_reduce` takes the device's memory and puts the sum into the order of its compute
  // stream. What is queued is launched in the order of the rank's launches
  // (exec/transport/launch_plan/launch_plan.hpp). Transports without streams do nothing here. A rank's step, with
  // `compute` the device's compute stream:
  //   begin_step(launches, lane); expect(…) and receive_into(…) of all messages
  //   for index, action: reach(index)
  //     F, I, B, W, R: compute.wait(input.ready); began(index, compute.record()); …; output.ready = compute.record()
  //     SEND: send(…)   RECV: payload = receive(…)   REDUCE_*: wait, collective(…), compute.wait(what it returns)
  //   reach(number of actions); launched = end_step(); await every `end`, then read their times

  // `launches` must live until all that it has has ended. `lane`: the run's ranks that this one's pipeline has.
  virtual void begin_step(const RankLaunches& /*launches*/, std::span<const int> /*lane*/) {}

  // The messages of a peer that were expected last go into these slots, in their order. One whose slot is still held,
  // and all for which none was named, go into memory of the transport's own.
  virtual void receive_into(const ReceiveArena& /*arena*/, int /*peer*/, Channel /*channel*/,
                            std::span<const std::int32_t> /*slots*/) {}

  // Launches every batch whose place is at most this one and has not been launched.
  virtual void reach(std::int32_t /*place*/) {}

  // The compute action at `index` of the rank's list starts at `start`.
  virtual void began(std::int32_t /*index*/, const MomentPtr& /*start*/) {}

  // All batches of the step with their moments, in the order of launch. Throws RunError if one was not launched.
  [[nodiscard]] virtual std::vector<Launched> end_step() { return {}; }

  // Throws what has become of the run meanwhile: the library's asynchronous error (RunError), a stop (Stopped). Gives
  // back the payloads whose sends have ended. Cheap: called between actions, and while the rank waits for its device.
  virtual void poll() {}

  // Polls until `moment` has come: at the end of a step, to read its times. Past the deadline a RunError names the
  // oldest batch that has not ended, its peers and its communicator.
  virtual void await(const MomentPtr& /*moment*/, Clock::time_point /*deadline*/) {}

  // On the communicator's stream; what it returns comes when `output` is there. Throws RunError where there are no
  // streams, and for one of a group that is not the next of the rank's launches.
  [[nodiscard]] virtual MomentPtr collective(const CollectiveCall& call);
};

// Where `rank` stands in the group of a collective. Throws RunError for a group that is not ascending (no rank twice)
// or does not hold it.
[[nodiscard]] std::size_t position_in(std::span<const int> group, int rank);

}  // namespace plumb::exec
