#include "exec/transport/gloo/gloo_queues.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/base/error.hpp"
#include "exec/host/pauses.hpp"
#include "exec/transport/gloo/broken_pipes.hpp"
#include "exec/transport/gloo/gloo_error.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t small_message = 64 << 10;  // bytes; less than a socket's buffer
constexpr std::size_t unreaped_messages = 16;
constexpr std::uint64_t buffers_ahead = 2;  // messages of a queue that may arrive before they are needed

// Between ranks of one host. The same at both ends of a queue.
bool goes_by_link(std::int64_t bytes) { return bytes <= static_cast<std::int64_t>(small_message); }

const char* name(QueueKind kind) {
  constexpr std::array names{"forward", "backward", "control", "eviction", "collective", "sums", "gathers"};
  return names[static_cast<std::size_t>(kind)];
}

// Not LibTorch's memory: it counts what each thread allocates and frees, and these words cross threads.
TravellingGrant travelling(Grant content) {
  auto grant = std::make_shared<Grant>(content);
  at::Tensor tensor = at::from_blob(grant.get(), {static_cast<std::int64_t>(sizeof(Grant))}, at::kByte);
  return {.grant = std::move(grant), .tensor = std::move(tensor)};
}

// A view; the caller keeps the bytes alive. Gloo has no empty messages: in their place travels `empty`.
at::Tensor tensor_of(const Payload& payload, const TravellingGrant& empty) {
  if (payload.size == 0) return empty.tensor;
  return at::from_blob(payload.data, {static_cast<std::int64_t>(payload.size)}, at::kByte);
}

}  // namespace

int tag_of(QueueKind kind, Leg leg, std::uint64_t sequence) {
  constexpr std::uint64_t in_flight = 1U << 24U;  // far more than a queue ever holds
  return static_cast<int>(16 * (sequence % in_flight)) + 2 * static_cast<int>(kind) + static_cast<int>(leg);
}

// A receive writes too: that there is a buffer.
GlooWork GlooFabric::post(const at::Tensor& tensor, int peer, int tag, bool send) const {
  const WithoutBrokenPipes guard;
  std::vector<at::Tensor> tensors{tensor};
  return send ? group->send(tensors, peer, tag) : group->recv(tensors, peer, tag);
}

Outgoing::Outgoing(GlooFabric& fabric, int peer, QueueKind kind)
    : fabric_(fabric), peer_(peer), kind_(kind), near_(fabric.is_near && fabric.is_near(peer)), thread_([this] {
        run();
      }) {}

Outgoing::~Outgoing() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    if (asking_) asking_->abort();
    for (const Sending& message : sending_) message.work->abort();
    if (no_room_) link_.close_sends();
  }
  changed_.notify_all();
  thread_.join();
}

void Outgoing::push(Payload payload) {
  {
    const std::scoped_lock lock(mutex_);
    if (left_) return fail("it has left the run");
    waiting_.push_back(std::move(payload));
    send_what_is_granted();
    // Small messages have left by now; the thread need not wake for each to find that out.
    const bool all_left = !closing_ && waiting_.empty() && granted_.count > 0;
    const bool all_small = sending_.empty() || sending_.back().payload.size <= small_message;
    if (all_left && all_small && sending_.size() <= unreaped_messages) return;
  }
  changed_.notify_all();
}

void Outgoing::release() {
  std::vector<Payload> released;
  const std::scoped_lock lock(mutex_);
  released.swap(delivered_);
}

void Outgoing::drain(Clock::time_point deadline) {
  changed_.notify_all();
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return waiting_.empty() && sending_.empty(); });
}

void Outgoing::run() {
  try {
    ask();
    while (proceed()) {
    }
  } catch (const std::exception& error) {
    // Behind the last barrier ranks leave one by one: who is still in it has nothing more for them.
    const bool left = fabric_.has_left && fabric_.has_left(peer_);
    const std::scoped_lock lock(mutex_);
    left_ = left && waiting_.empty();
    if (!closing_ && !left_) fail(gloo_cause(error));
  }
}

void Outgoing::fail(const std::string& reason) {
  fabric_.ending.fail(
      fmt::format("lost rank {} while sending to it on the {} channel ({})", peer_, name(kind_), reason));
}

void Outgoing::ask() {
  const std::scoped_lock lock(mutex_);
  if (closing_) return;
  answer_ = travelling({});
  asking_ = fabric_.post(answer_.tensor, peer_, tag_of(kind_, Leg::grant, asked_++), false);
}

// Waits for one thing: that the peer has the oldest message, or else for room on the link, or else, when there is no
// grant left, for the next.
bool Outgoing::proceed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !sending_.empty() || no_room_ || granted_.count == 0; });
  if (closing_) return false;
  if (sending_.empty() && no_room_) {
    await_room(lock);
    return !closing_;
  }
  const bool sending = !sending_.empty();
  const GlooWork work = sending ? sending_.front().work : asking_;
  lock.unlock();
  work->wait(gloo_never);
  lock.lock();
  if (closing_) return false;
  if (sending) {
    delivered_.push_back(std::move(sending_.front().payload));
    sending_.pop_front();
    changed_.notify_all();
    return true;
  }
  granted_ = *answer_.grant;
  send_what_is_granted();
  changed_.notify_all();  // what went by link is out, and `drain` may wait for that
  lock.unlock();
  ask();
  return true;
}

void Outgoing::await_room(std::unique_lock<std::mutex>& lock) {
  if (link_closed_) throw RunError("", "connection closed by peer");
  lock.unlock();
  link_.await_room();
  lock.lock();
  no_room_ = false;
  send_what_is_granted();
  changed_.notify_all();
}

// Of the caller: the lock. False: there is no room, or the peer has gone, and the queue's thread sees to that.
bool Outgoing::send_by_link(const Payload& payload) {
  if (no_room_) return false;
  if (!link_) {
    std::optional<HostLink> opened = fabric_.links->opened_by(peer_, static_cast<int>(kind_));
    if (!opened) {
      throw RunError(fmt::format("rank {}", fabric_.ending.rank),
                     fmt::format("rank {} has opened no link for what it expects", peer_));
    }
    link_ = std::move(*opened);
  }
  const Sent sent = link_.send({payload.data, payload.size});
  link_closed_ = sent == Sent::closed;
  no_room_ = sent != Sent::yes;
  return !no_room_;
}

// Of the caller: the lock.
void Outgoing::send_what_is_granted() {
  while (!closing_ && granted_.count > 0 && !waiting_.empty()) {
    const auto bytes = static_cast<std::int64_t>(waiting_.front().size);
    if (granted_.bytes != bytes) {
      closing_ = true;
      fabric_.ending.fail(fmt::format("sends {} bytes to rank {} on the {} channel, which expects {}", bytes, peer_,
                                      name(kind_), granted_.bytes));
      return;
    }
    if (near_ && goes_by_link(bytes)) {
      if (!send_by_link(waiting_.front())) return;
      delivered_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      --granted_.count;
      ++sent_;
      continue;
    }
    Sending message{.payload = std::move(waiting_.front()), .empty = travelling({}), .work = {}};
    waiting_.pop_front();
    --granted_.count;
    message.work =
        fabric_.post(tensor_of(message.payload, message.empty), peer_, tag_of(kind_, Leg::payload, sent_++), true);
    sending_.push_back(std::move(message));
  }
}

Incoming::Incoming(GlooFabric& fabric, int peer, QueueKind kind, std::function<Payload(std::size_t bytes)> allocate)
    : fabric_(fabric),
      peer_(peer),
      kind_(kind),
      allocate_(std::move(allocate)),
      link_(fabric.is_near && fabric.is_near(peer) ? fabric.links->open_from(peer, static_cast<int>(kind))
                                                   : HostLink()),
      arrivals_(fabric.ending),
      thread_([this] { run(); }) {}

Incoming::~Incoming() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const Posted& message : posted_) message.work->abort();
    if (giving_) giving_->abort();
  }
  changed_.notify_all();
  thread_.join();
}

void Incoming::expect(std::size_t bytes, int count) {
  if (count == 0) return;
  const Grant messages{.bytes = static_cast<std::int64_t>(bytes), .count = count};
  const auto append = [&](std::deque<Grant>& list) {
    if (list.empty() || list.back().bytes != messages.bytes) list.push_back({.bytes = messages.bytes, .count = 0});
    list.back().count += messages.count;
  };
  append(expected_);
  post_buffers();
  const std::scoped_lock lock(mutex_);
  append(ungranted_);
  if (granted_ == 0) grant();
}

// On the rank's thread, whose memory the buffers are.
void Incoming::post_buffers() {
  bool posted = false;
  while (!expected_.empty() && posted_ever_ - received_ < buffers_ahead) {
    if (link_ && goes_by_link(expected_.front().bytes)) break;
    Posted message{
        .payload = allocate_(static_cast<std::size_t>(expected_.front().bytes)), .empty = travelling({}), .work = {}};
    if (--expected_.front().count == 0) expected_.pop_front();
    const int tag = tag_of(kind_, Leg::payload, posted_ever_++);
    const std::scoped_lock lock(mutex_);
    message.work = fabric_.post(tensor_of(message.payload, message.empty), peer_, tag, false);
    posted_.push_back(std::move(message));
    posted = true;
  }
  if (posted) changed_.notify_all();
}

// Of the caller: the lock. The last grant has been used up, so it has long arrived and its memory may be let go.
void Incoming::grant() {
  if (ungranted_.empty()) return;
  given_ = travelling(ungranted_.front());
  ungranted_.pop_front();
  granted_ = given_.grant->count;
  giving_ = fabric_.post(given_.tensor, peer_, tag_of(kind_, Leg::grant, grants_++), true);
}

std::string Incoming::lost() const {
  return fmt::format("lost rank {} while receiving from it on the {} channel", peer_, name(kind_));
}

std::string Incoming::late() const {
  return fmt::format("no message from rank {} on the {} channel before the deadline", peer_, name(kind_));
}

// Of a message that is there: when it was sent.
std::optional<Clock::time_point> Incoming::look_at_link(const Payload& into) {
  std::string problem;
  try {
    const std::optional<Clock::time_point> sent = link_.receive({into.data, into.size});
    if (sent) return sent;
  } catch (const RunError& error) {
    problem = error.problem();
  }
  const std::scoped_lock lock(fabric_.ending.mutex);
  fabric_.ending.throw_if_over();
  if (!problem.empty()) {
    throw RunError(fmt::format("rank {}", fabric_.ending.rank), fmt::format("{} ({})", lost(), problem));
  }
  return std::nullopt;
}

// The rank itself takes it from the socket. On a host a message is there as soon as it has been sent.
Received Incoming::receive_by_link(Clock::time_point deadline) {
  Payload payload = allocate_(static_cast<std::size_t>(expected_.front().bytes));
  std::optional<Clock::time_point> arrived = look_at_link(payload);
  while (!arrived) {
    link_.await_message(fabric_.ending.over, wake_at(deadline));
    const Clock::time_point now = Clock::now();
    if (look_at_link(payload)) {
      arrived = now;
    } else if (has_passed(deadline)) {
      throw PastDeadline(RunError(fmt::format("rank {}", fabric_.ending.rank), late()));
    }
  }
  took_from_link();
  return {std::move(payload), *arrived};
}

void Incoming::took_from_link() {
  if (--expected_.front().count == 0) expected_.pop_front();
  ++posted_ever_;
  ++received_;
  grant_after_link();
  post_buffers();
}

bool Incoming::has_arrived() {
  if (taken_ || received_ != posted_ever_) return taken_ || arrivals_.any();
  if (expected_.empty()) return false;
  Payload payload = allocate_(static_cast<std::size_t>(expected_.front().bytes));
  const std::optional<Clock::time_point> arrived = look_at_link(payload);
  if (!arrived) return false;
  took_from_link();
  taken_ = Received{std::move(payload), *arrived};
  return true;
}

void Incoming::grant_after_link() {
  const std::scoped_lock lock(mutex_);
  if (--granted_ > 0) return;
  try {
    grant();
  } catch (const std::exception& error) {  // Gloo's, where the connection is closed
    throw RunError(fmt::format("rank {}", fabric_.ending.rank), fmt::format("{} ({})", lost(), gloo_cause(error)));
  }
}

Received Incoming::receive(Clock::time_point deadline) {
  if (taken_) return *std::exchange(taken_, std::nullopt);
  if (received_ == posted_ever_ && !expected_.empty()) return receive_by_link(deadline);
  if (received_ == posted_ever_) {
    throw RunError(fmt::format("rank {}", fabric_.ending.rank),
                   fmt::format("receives from rank {} without expecting a message", peer_));
  }
  // While it waits, the rank has time for the next buffers; when a message is there already, it has work to do.
  if (!arrivals_.any()) post_buffers();
  Received received = arrivals_.take(
      deadline, [this] { return lost(); }, [this] { return late(); });
  ++received_;
  if (received_ == posted_ever_) post_buffers();
  return received;
}

void Incoming::run() {
  try {
    while (take_next()) {
    }
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (closing_) return;
    arrivals_.lose(gloo_cause(error));
  }
}

bool Incoming::take_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !posted_.empty(); });
  if (closing_) return false;
  const GlooWork work = posted_.front().work;
  lock.unlock();
  work->wait(gloo_never);
  const Clock::time_point now = Clock::now();
  lock.lock();
  if (closing_) return false;
  Payload payload = std::move(posted_.front().payload);
  posted_.pop_front();
  lock.unlock();
  arrivals_.put({std::move(payload), now});
  lock.lock();
  if (closing_) return false;
  if (--granted_ == 0) grant();
  return true;
}

}  // namespace plumb::exec
