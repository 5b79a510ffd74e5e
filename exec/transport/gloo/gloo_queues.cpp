#include "exec/transport/gloo/gloo_queues.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "common/base/error.hpp"
#include "exec/device/torch_error.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t small_message = 64 << 10;  // bytes; less than a socket's buffer
constexpr std::size_t unreaped_messages = 16;
constexpr std::uint64_t buffers_ahead = 2;  // messages of a queue that may arrive before they are needed

const char* name(QueueKind kind) {
  switch (kind) {
    case QueueKind::forward:
      return "forward";
    case QueueKind::backward:
      return "backward";
    case QueueKind::control:
      return "control";
    case QueueKind::parcel:
      return "eviction";
    case QueueKind::collective:
      return "collective";
  }
  return "";
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

Payload plain_memory(std::size_t bytes) {
  std::shared_ptr<std::byte[]> buffer(new std::byte[bytes]);
  return {.owner = buffer, .data = buffer.get(), .size = bytes};
}

GlooWork GlooFabric::post(const at::Tensor& tensor, int peer, int tag, bool send) const {
  std::vector<at::Tensor> tensors{tensor};
  return send ? group->send(tensors, peer, tag) : group->recv(tensors, peer, tag);
}

Outgoing::Outgoing(GlooFabric& fabric, int peer, QueueKind kind)
    : fabric_(fabric), peer_(peer), kind_(kind), thread_([this] { run(); }) {}

Outgoing::~Outgoing() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    if (asking_) asking_->abort();
    for (const Sending& message : sending_) message.work->abort();
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
    if (all_left && sending_.size() <= unreaped_messages && sending_.back().payload.size <= small_message) return;
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
    if (!closing_ && !left_) fail(first_line(error));
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

// Waits for one thing: that the peer has the oldest message, or else, when there is no grant left, for the next.
bool Outgoing::proceed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !sending_.empty() || granted_.count == 0; });
  if (closing_) return false;
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
  lock.unlock();
  ask();
  return true;
}

// Of the caller: the lock.
void Outgoing::send_what_is_granted() {
  while (!closing_ && granted_.count > 0 && !waiting_.empty()) {
    Sending message{.payload = std::move(waiting_.front()), .empty = travelling({}), .work = {}};
    waiting_.pop_front();
    if (granted_.bytes != static_cast<std::int64_t>(message.payload.size)) {
      closing_ = true;
      fabric_.ending.fail(fmt::format("sends {} bytes to rank {} on the {} channel, which expects {}",
                                      message.payload.size, peer_, name(kind_), granted_.bytes));
      return;
    }
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

Received Incoming::receive(Clock::time_point deadline) {
  if (received_ == posted_ever_) {
    throw RunError(fmt::format("rank {}", fabric_.ending.rank),
                   fmt::format("receives from rank {} without expecting a message", peer_));
  }
  // While it waits, the rank has time for the next buffers; when a message is there already, it has work to do.
  if (!arrivals_.any()) post_buffers();
  Received received = arrivals_.take(
      deadline,
      [this] { return fmt::format("lost rank {} while receiving from it on the {} channel", peer_, name(kind_)); },
      [this] {
        return fmt::format("no message from rank {} on the {} channel before the deadline", peer_, name(kind_));
      });
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
    arrivals_.lose(first_line(error));
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
