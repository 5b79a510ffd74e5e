#include "exec/transport/gloo_queues.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

constexpr int credits_ahead = 4;

const char* name(QueueKind kind) {
  switch (kind) {
    case QueueKind::forward:
      return "forward";
    case QueueKind::backward:
      return "backward";
    case QueueKind::collective:
      return "collective";
  }
  return "";
}

// Gloo matches by tag and neither compares sizes nor survives a message larger than its buffer. So a receiver first
// grants a credit, which says how many bytes it expects, and the sender sends only what was granted.
enum class Leg : int { credit, payload };

int tag_of(QueueKind kind, Leg leg, std::uint64_t sequence) {
  constexpr std::uint64_t in_flight = 1U << 24U;  // far more than a queue ever holds
  return static_cast<int>(6 * (sequence % in_flight)) + 2 * static_cast<int>(kind) + static_cast<int>(leg);
}

// Not LibTorch's memory: it counts what each thread allocates and frees, and these words cross threads.
Word word() {
  auto value = std::make_shared<std::int64_t>(0);
  at::Tensor tensor = at::from_blob(value.get(), {1}, at::kLong);
  return {.value = std::move(value), .tensor = std::move(tensor)};
}

// A view; the caller keeps the bytes alive. Gloo has no empty messages: those travel as one word.
at::Tensor tensor_of(const Payload& payload, const Word& empty) {
  if (payload.size == 0) return empty.tensor;
  return at::from_blob(payload.data, {static_cast<std::int64_t>(payload.size)}, at::kByte);
}

}  // namespace

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
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
    for (const Credit& credit : credits_) credit.work->abort();
    if (sending_) sending_->abort();
  }
  changed_.notify_all();
  thread_.join();
}

void Outgoing::push(Payload payload) {
  {
    const std::scoped_lock lock(mutex_);
    messages_.push_back(std::move(payload));
  }
  changed_.notify_all();
}

void Outgoing::release() {
  std::vector<Payload> released;
  const std::scoped_lock lock(mutex_);
  released.swap(delivered_);
}

void Outgoing::drain(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return messages_.empty(); });
}

void Outgoing::run() {
  try {
    for (int i = 0; i < credits_ahead; ++i) ask_for_credit();
    while (send_next()) {
    }
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (closing_) return;
    fabric_.ending.fail(
        fmt::format("lost rank {} while sending to it on the {} channel ({})", peer_, name(kind_), first_line(error)));
  }
}

void Outgoing::ask_for_credit() {
  const Word bytes = word();
  const GlooWork work = fabric_.post(bytes.tensor, peer_, tag_of(kind_, Leg::credit, asked_++), false);
  const std::scoped_lock lock(mutex_);
  if (closing_) work->abort();
  credits_.push_back({bytes, work});
}

bool Outgoing::send_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !messages_.empty(); });
  if (closing_) return false;
  // It stays in the queue, and alive, until the peer has it.
  const Payload& message = messages_.front();
  const Credit credit = credits_.front();
  lock.unlock();
  credit.work->wait();
  const std::int64_t granted = *credit.bytes.value;
  lock.lock();
  if (closing_) return false;
  if (granted != static_cast<std::int64_t>(message.size)) {
    fabric_.ending.fail(fmt::format("sends {} bytes to rank {} on the {} channel, which expects {}", message.size,
                                    peer_, name(kind_), granted));
    return false;
  }
  credits_.pop_front();
  sending_ = fabric_.post(tensor_of(message, credit.bytes), peer_, tag_of(kind_, Leg::payload, sent_++), true);
  const GlooWork work = sending_;
  lock.unlock();
  ask_for_credit();
  work->wait();
  lock.lock();
  sending_.reset();
  delivered_.push_back(std::move(messages_.front()));
  messages_.pop_front();
  changed_.notify_all();
  return true;
}

Incoming::Incoming(GlooFabric& fabric, int peer, QueueKind kind)
    : fabric_(fabric), peer_(peer), kind_(kind), thread_([this] { run(); }) {}

Incoming::~Incoming() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const Announced& message : announced_) {
      message.work->abort();
      message.credit->abort();
    }
  }
  changed_.notify_all();
  thread_.join();
}

void Incoming::expect(Payload buffer) {
  const std::uint64_t sequence = expected_++;
  const auto bytes = static_cast<std::int64_t>(buffer.size);
  Announced message{.payload = std::move(buffer), .granted = word(), .empty = word(), .work = {}, .credit = {}};
  *message.granted.value = bytes;
  const std::scoped_lock lock(mutex_);
  message.work =
      fabric_.post(tensor_of(message.payload, message.empty), peer_, tag_of(kind_, Leg::payload, sequence), false);
  message.credit = fabric_.post(message.granted.tensor, peer_, tag_of(kind_, Leg::credit, sequence), true);
  announced_.push_back(std::move(message));
  changed_.notify_all();
}

Received Incoming::receive(Clock::time_point deadline) {
  if (received_ == expected_) {
    throw RunError(fmt::format("rank {}", fabric_.ending.rank),
                   fmt::format("receives from rank {} without expecting a message", peer_));
  }
  std::unique_lock lock(fabric_.ending.mutex);
  const bool waited = arrived_.empty();
  while (arrived_.empty()) {
    fabric_.ending.throw_if_over();
    if (lost_) {
      throw RunError(
          fmt::format("rank {}", fabric_.ending.rank),
          fmt::format("lost rank {} while receiving from it on the {} channel ({})", peer_, name(kind_), *lost_));
    }
    if (fabric_.ending.changed.wait_until(lock, deadline) == std::cv_status::timeout && arrived_.empty()) {
      throw RunError(fmt::format("rank {}", fabric_.ending.rank),
                     fmt::format("no message from rank {} on the {} channel before the deadline", peer_, name(kind_)));
    }
  }
  Received received = std::move(arrived_.front());
  arrived_.pop_front();
  ++received_;
  if (waited) received.arrived = Clock::now();
  return received;
}

void Incoming::run() {
  try {
    while (take_next()) {
    }
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (closing_) return;
    const std::scoped_lock ending_lock(fabric_.ending.mutex);
    lost_ = first_line(error);
    fabric_.ending.changed.notify_all();
  }
}

bool Incoming::take_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !announced_.empty(); });
  if (closing_) return false;
  const GlooWork work = announced_.front().work;
  const GlooWork credit = announced_.front().credit;
  lock.unlock();
  work->wait();
  const Clock::time_point now = Clock::now();
  credit->wait();
  lock.lock();
  if (closing_) return false;
  Payload payload = std::move(announced_.front().payload);
  announced_.pop_front();
  const std::scoped_lock ending_lock(fabric_.ending.mutex);
  arrived_.push_back({std::move(payload), now});
  fabric_.ending.changed.notify_all();
  return true;
}

}  // namespace plumb::exec
