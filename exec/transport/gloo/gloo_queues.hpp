// Messages between two ranks over Gloo, in order, with credits; each queue on a thread of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "exec/transport/ending.hpp"
#include "exec/transport/gloo/arrivals.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

enum class QueueKind : int { forward, backward, control, parcel, collective };

// Gloo matches by tag and neither compares sizes nor survives a message larger than its buffer. So a receiver first
// grants what it expects, and the sender sends only what was granted: expected at the start of a step, all messages of
// a queue need one grant. That there is a buffer for a granted message is Gloo's to see to: it holds a send back until
// the matching receive is posted. One grant is under way at a time; what is expected meanwhile shares the next one.
enum class Leg : int { grant, payload };
[[nodiscard]] int tag_of(QueueKind kind, Leg leg, std::uint64_t sequence);

inline constexpr std::chrono::milliseconds gloo_never = std::chrono::hours(24);  // Gloo closes all when one wait ends

[[nodiscard]] Payload plain_memory(std::size_t bytes);

using GlooWork = c10::intrusive_ptr<c10d::Work>;

// What all queues of a rank share.
struct GlooFabric {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  Ending ending;
  std::function<bool(int peer)> has_left = {};  // and was not lost: it has said that it has gone; empty: nobody knows
  [[nodiscard]] GlooWork post(const at::Tensor& tensor, int peer, int tag, bool send) const;
};

// What a receiver tells a sender: the next `count` messages have so many bytes each.
struct Grant {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

// A grant in memory that outlives its travel. Also what travels for an empty message.
struct TravellingGrant {
  std::shared_ptr<Grant> grant;
  at::Tensor tensor;
};

// Messages to one peer: the rank never waits for a peer that is not ready. What is granted already leaves on the rank's
// own thread, the rest on the queue's.
class Outgoing {
 public:
  Outgoing(GlooFabric& fabric, int peer, QueueKind kind);
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;
  ~Outgoing();

  void push(Payload payload);

  // Lets go of what the peer has: on the rank's thread, whose memory it was.
  void release();

  // Returns when everything has reached the peer, or at the deadline.
  void drain(Clock::time_point deadline);

 private:
  struct Sending {
    Payload payload;  // alive until the peer has it
    TravellingGrant empty;
    GlooWork work;
  };

  void run();
  void ask();
  bool proceed();
  void send_what_is_granted();
  void fail(const std::string& reason);

  GlooFabric& fabric_;
  int peer_;
  QueueKind kind_;
  std::mutex mutex_;  // of all below; taken before the ending's
  std::condition_variable changed_;
  bool closing_ = false;
  bool left_ = false;  // the peer, with nothing to come from here
  std::uint64_t asked_ = 0;
  std::uint64_t sent_ = 0;
  TravellingGrant answer_;  // of the grant that was asked for
  GlooWork asking_;
  Grant granted_;
  std::deque<Payload> waiting_;
  std::deque<Sending> sending_;
  std::vector<Payload> delivered_;
  std::thread thread_;
};

// Messages from one peer. The thread notes when each arrives, whatever the rank is doing.
class Incoming {
 public:
  Incoming(GlooFabric& fabric, int peer, QueueKind kind, std::function<Payload(std::size_t bytes)> allocate);
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  ~Incoming();

  void expect(std::size_t bytes, int count);
  [[nodiscard]] Received receive(Clock::time_point deadline);

 private:
  struct Posted {  // a message that may arrive
    Payload payload;
    TravellingGrant empty;
    GlooWork work;
  };

  void run();
  bool take_next();
  void post_buffers();
  void grant();

  GlooFabric& fabric_;
  int peer_;
  QueueKind kind_;
  std::function<Payload(std::size_t bytes)> allocate_;
  // Of the rank's thread alone: expected messages that have no buffer yet, how many have had one, how many were taken.
  std::deque<Grant> expected_;
  std::uint64_t posted_ever_ = 0;
  std::uint64_t received_ = 0;
  Arrivals<Received> arrivals_;
  std::mutex mutex_;  // of all below; taken before the ending's
  std::condition_variable changed_;
  bool closing_ = false;
  std::deque<Posted> posted_;
  std::deque<Grant> ungranted_;
  std::int64_t granted_ = 0;  // messages that have not arrived yet
  std::uint64_t grants_ = 0;
  TravellingGrant given_;  // the last one
  GlooWork giving_;
  std::thread thread_;
};

}  // namespace plumb::exec
