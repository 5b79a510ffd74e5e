// Messages between two ranks over Gloo, in order, with credits; each queue on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/transport/gloo/arrivals.hpp"
#include "exec/transport/gloo/gloo_fabric.hpp"
#include "exec/transport/host_links.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Messages to one peer: the rank never waits for a peer that is not ready. What is granted already leaves on the rank's
// own thread, the rest on the queue's, which also waits for room on the link.
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
  void await_room(std::unique_lock<std::mutex>& lock);
  void send_what_is_granted();
  [[nodiscard]] bool send_by_link(const Payload& payload);
  void fail(const std::string& reason);

  GlooFabric& fabric_;
  int peer_;
  QueueKind kind_;
  bool near_;
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
  HostLink link_;         // none until a message goes there
  bool no_room_ = false;  // on the link
  bool link_closed_ = false;
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
  // Whether the oldest expected message is here. Takes it from a link.
  [[nodiscard]] bool has_arrived();
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
  [[nodiscard]] Received receive_by_link(Clock::time_point deadline);
  [[nodiscard]] std::optional<Clock::time_point> look_at_link(const Payload& into);
  void took_from_link();
  void grant_after_link();
  [[nodiscard]] std::string lost() const;
  [[nodiscard]] std::string late() const;
  void grant();

  GlooFabric& fabric_;
  int peer_;
  QueueKind kind_;
  std::function<Payload(std::size_t bytes)> allocate_;
  HostLink link_;  // none: the peer is on another host
  // Of the rank's thread alone: expected messages that have no buffer yet, how many have had one, how many were taken.
  std::deque<Grant> expected_;
  std::uint64_t posted_ever_ = 0;
  std::uint64_t received_ = 0;
  std::optional<Received> taken_;  // from the link, before the rank has received it
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
