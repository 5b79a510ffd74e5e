#include "exec/transport/gloo.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;
using Group = c10d::ProcessGroupGloo;
using Work = c10::intrusive_ptr<c10d::Work>;

constexpr auto sign_of_life_every = 200ms;
constexpr auto drain_time = 5s;                 // for the last sends when a rank leaves
constexpr auto never = std::chrono::hours(24);  // Gloo closes all connections when one operation times out: we watch
constexpr int credits_ahead = 4;

enum class QueueKind : int { forward, backward, collective };

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

QueueKind kind_of(Channel channel) { return channel == Channel::forward ? QueueKind::forward : QueueKind::backward; }

// Gloo matches by tag and neither compares sizes nor survives a message larger than its buffer. So a receiver first
// grants a credit, which says how many bytes it expects, and the sender sends only what was granted.
enum class Leg : int { credit, payload };

int tag_of(QueueKind kind, Leg leg, std::uint64_t sequence) {
  constexpr std::uint64_t in_flight = 1U << 24U;  // far more than a queue ever holds
  return static_cast<int>(6 * (sequence % in_flight)) + 2 * static_cast<int>(kind) + static_cast<int>(leg);
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// A view; the caller keeps the bytes alive. Gloo has no empty messages: those travel as one byte.
at::Tensor tensor_of(const Payload& payload) {
  if (payload.size == 0) return at::empty({1}, at::kByte);
  return at::from_blob(payload.data, {static_cast<std::int64_t>(payload.size)}, at::kByte);
}

Payload plain_memory(std::size_t bytes) {
  std::shared_ptr<std::byte[]> buffer(new std::byte[bytes]);
  return {.owner = buffer, .data = buffer.get(), .size = bytes};
}

// What all queues of a rank share. The rank's thread waits on `changed`.
struct Fabric {
  c10::intrusive_ptr<Group> group;
  int rank = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;      // this rank's own
  std::optional<std::string> stop_reason;  // another's
  std::optional<std::string> to_announce;  // of either, not yet in the store

  void fail(const std::string& problem) {
    const std::scoped_lock lock(mutex);
    if (failure || stop_reason) return;
    failure = problem;
    to_announce = fmt::format("rank {}: {}", rank, problem);
    changed.notify_all();
  }

  void stop(const std::string& reason, bool announce) {
    const std::scoped_lock lock(mutex);
    if (announce && !to_announce) to_announce = reason;
    if (!stop_reason) stop_reason = reason;
    changed.notify_all();
  }

  // With `mutex` held.
  void throw_if_over() const {
    if (failure) throw RunError(fmt::format("rank {}", rank), *failure);
    if (stop_reason) throw Stopped(*stop_reason);
  }

  Work post(const at::Tensor& tensor, int peer, int tag, bool send) const {
    std::vector<at::Tensor> tensors{tensor};
    return send ? group->send(tensors, peer, tag) : group->recv(tensors, peer, tag);
  }
};

// Messages to one peer, in order, on a thread of their own: the rank never waits for a peer that is not ready.
class Outgoing {
 public:
  Outgoing(Fabric& fabric, int peer, QueueKind kind)
      : fabric_(fabric), peer_(peer), kind_(kind), thread_([this] { run(); }) {}

  ~Outgoing() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
      for (const Credit& credit : credits_) credit.work->abort();
      if (sending_) sending_->abort();
    }
    changed_.notify_all();
    thread_.join();
  }

  void push(Payload payload) {
    {
      const std::scoped_lock lock(mutex_);
      messages_.push_back(std::move(payload));
    }
    changed_.notify_all();
  }

  // True when everything has reached the peer before the deadline.
  bool drain(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return messages_.empty(); });
  }

 private:
  struct Credit {
    at::Tensor bytes;
    Work work;
  };

  void run() {
    try {
      for (int i = 0; i < credits_ahead; ++i) ask_for_credit();
      while (send_next()) {
      }
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex_);
      if (closing_) return;
      fabric_.fail(fmt::format("lost rank {} while sending to it on the {} channel ({})", peer_, name(kind_),
                               first_line(error)));
    }
  }

  void ask_for_credit() {
    const at::Tensor bytes = at::empty({1}, at::kLong);
    const Work work = fabric_.post(bytes, peer_, tag_of(kind_, Leg::credit, asked_++), false);
    const std::scoped_lock lock(mutex_);
    if (closing_) work->abort();
    credits_.push_back({bytes, work});
  }

  bool send_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closing_ || !messages_.empty(); });
    if (closing_) return false;
    const Payload message = messages_.front();  // stays in the queue, and alive, until the peer has it
    const Credit credit = credits_.front();
    lock.unlock();
    credit.work->wait();
    const auto granted = *credit.bytes.const_data_ptr<std::int64_t>();
    lock.lock();
    if (closing_) return false;
    if (granted != static_cast<std::int64_t>(message.size)) {
      fabric_.fail(fmt::format("sends {} bytes to rank {} on the {} channel, which expects {}", message.size, peer_,
                               name(kind_), granted));
      return false;
    }
    credits_.pop_front();
    sending_ = fabric_.post(tensor_of(message), peer_, tag_of(kind_, Leg::payload, sent_++), true);
    const Work work = sending_;
    lock.unlock();
    ask_for_credit();
    work->wait();
    lock.lock();
    sending_.reset();
    messages_.pop_front();
    changed_.notify_all();
    return true;
  }

  Fabric& fabric_;
  int peer_;
  QueueKind kind_;
  std::uint64_t asked_ = 0;  // of the thread alone, as is sent_
  std::uint64_t sent_ = 0;
  std::mutex mutex_;  // of all below; taken before the fabric's
  std::condition_variable changed_;
  bool closing_ = false;
  std::deque<Payload> messages_;
  std::deque<Credit> credits_;
  Work sending_;
  std::thread thread_;
};

// Messages from one peer. A thread of its own notes when each arrives, whatever the rank is doing.
class Incoming {
 public:
  Incoming(Fabric& fabric, int peer, QueueKind kind)
      : fabric_(fabric), peer_(peer), kind_(kind), thread_([this] { run(); }) {}

  ~Incoming() {
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

  void expect(Payload buffer) {
    const std::uint64_t sequence = expected_++;
    const auto bytes = static_cast<std::int64_t>(buffer.size);
    Announced message{.payload = std::move(buffer), .granted = at::empty({1}, at::kLong), .work = {}, .credit = {}};
    *message.granted.mutable_data_ptr<std::int64_t>() = bytes;
    const std::scoped_lock lock(mutex_);
    message.work = fabric_.post(tensor_of(message.payload), peer_, tag_of(kind_, Leg::payload, sequence), false);
    message.credit = fabric_.post(message.granted, peer_, tag_of(kind_, Leg::credit, sequence), true);
    announced_.push_back(std::move(message));
    changed_.notify_all();
  }

  Received receive(Clock::time_point deadline) {
    if (received_ == expected_) {
      throw RunError(fmt::format("rank {}", fabric_.rank),
                     fmt::format("receives from rank {} without expecting a message", peer_));
    }
    std::unique_lock lock(fabric_.mutex);
    while (arrived_.empty()) {
      fabric_.throw_if_over();
      if (lost_) {
        throw RunError(
            fmt::format("rank {}", fabric_.rank),
            fmt::format("lost rank {} while receiving from it on the {} channel ({})", peer_, name(kind_), *lost_));
      }
      if (fabric_.changed.wait_until(lock, deadline) == std::cv_status::timeout && arrived_.empty()) {
        throw RunError(
            fmt::format("rank {}", fabric_.rank),
            fmt::format("no message from rank {} on the {} channel before the deadline", peer_, name(kind_)));
      }
    }
    Received received = std::move(arrived_.front());
    arrived_.pop_front();
    ++received_;
    return received;
  }

 private:
  struct Announced {
    Payload payload;
    at::Tensor granted;
    Work work;
    Work credit;
  };

  void run() {
    try {
      while (take_next()) {
      }
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex_);
      if (closing_) return;
      const std::scoped_lock fabric_lock(fabric_.mutex);
      lost_ = first_line(error);
      fabric_.changed.notify_all();
    }
  }

  bool take_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closing_ || !announced_.empty(); });
    if (closing_) return false;
    const Work work = announced_.front().work;
    const Work credit = announced_.front().credit;
    lock.unlock();
    work->wait();
    const Clock::time_point now = Clock::now();
    credit->wait();
    lock.lock();
    if (closing_) return false;
    Payload payload = std::move(announced_.front().payload);
    announced_.pop_front();
    const std::scoped_lock fabric_lock(fabric_.mutex);
    arrived_.push_back({std::move(payload), now});
    fabric_.changed.notify_all();
    return true;
  }

  Fabric& fabric_;
  int peer_;
  QueueKind kind_;
  std::uint64_t expected_ = 0;  // of the rank's thread alone, as is received_
  std::uint64_t received_ = 0;
  std::deque<Received> arrived_;     // under the fabric's mutex
  std::optional<std::string> lost_;  // under the fabric's mutex
  std::mutex mutex_;                 // of all below; taken before the fabric's
  std::condition_variable changed_;
  bool closing_ = false;
  std::deque<Announced> announced_;
  std::thread thread_;
};

// Tells the others that this rank lives and what it does, listens for a stop, and watches the next rank.
class KeepAlive {
 public:
  KeepAlive(const GlooOptions& options, Fabric& fabric, std::shared_ptr<RunStore> store)
      : options_(options), fabric_(fabric), store_(std::move(store)), thread_([this] { run(); }) {}

  ~KeepAlive() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void wake() {
    {
      const std::scoped_lock lock(mutex_);
      woken_ = true;
    }
    wake_.notify_all();
  }

 private:
  static constexpr const char* gone = "gone";

  void run() {
    try {
      std::unique_lock lock(mutex_);
      while (!closing_) {
        lock.unlock();
        tick();
        lock.lock();
        wake_.wait_for(lock, sign_of_life_every, [this] { return closing_ || woken_; });
        woken_ = false;
      }
      lock.unlock();
      announce();
      store_->say(options_.rank, gone);
    } catch (const std::exception& error) {
      fabric_.fail(first_line(error));
    }
  }

  void tick() {
    announce();
    store_->say(options_.rank, fmt::format("{} {}", ++ticks_, options_.doing ? options_.doing() : ""));
    const std::string reason = store_->stop_reason();
    if (!reason.empty()) fabric_.stop(reason, false);
    if (options_.size > 1) watch((options_.rank + 1) % options_.size);
  }

  void announce() {
    std::optional<std::string> reason;
    {
      const std::scoped_lock lock(fabric_.mutex);
      reason = std::exchange(fabric_.to_announce, std::nullopt);
    }
    if (reason) store_->stop(*reason);
  }

  // Counts our own ticks, not time: when the whole machine pauses, nobody is to blame.
  void watch(int peer) {
    const std::string said = store_->said(peer);
    if (said.empty() || said == gone || said != last_said_) {
      last_said_ = said;
      silent_ticks_ = 0;
      return;
    }
    const auto silence = std::chrono::duration<double>(sign_of_life_every * ++silent_ticks_);
    if (silence.count() < options_.silence_limit.value) return;
    const std::string doing = said.substr(std::min(said.size(), said.find(' ') + 1));
    fabric_.stop(fmt::format("rank {}{}: gives no sign of life since {:.1f} s", peer,
                             doing.empty() ? "" : ", " + (options_.describe ? options_.describe(peer, doing) : doing),
                             silence.count()),
                 true);
    announce();
  }

  const GlooOptions& options_;
  Fabric& fabric_;
  std::shared_ptr<RunStore> store_;
  std::uint64_t ticks_ = 0;
  std::string last_said_;
  int silent_ticks_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;
  bool woken_ = false;
  std::thread thread_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(const GlooOptions& options, std::shared_ptr<RunStore> store, c10::intrusive_ptr<Group> group)
      : options_(options) {
    fabric_.group = std::move(group);
    fabric_.rank = options.rank;
    keep_alive_.emplace(options_, fabric_, std::move(store));
  }

  ~GlooTransport() override {
    const Clock::time_point deadline = Clock::now() + drain_time;
    for (auto& entry : outgoing_) {
      if (!is_over()) entry.second->drain(deadline);
    }
    outgoing_.clear();
    incoming_.clear();
    keep_alive_.reset();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void send(int peer, Channel channel, Payload payload) override { post(peer, kind_of(channel), std::move(payload)); }

  void expect(int peer, Channel channel, std::size_t bytes) override { announce(peer, kind_of(channel), bytes); }

  Received receive(int peer, Channel channel, Clock::time_point deadline) override {
    Received received = incoming(peer, kind_of(channel)).receive(deadline);
    received_ += Bytes{static_cast<std::int64_t>(received.payload.size)};
    return received;
  }

  // Everyone sends its values to everyone: fine for the groups of two that tied embeddings need.
  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) override {
    if (!std::is_sorted(group.begin(), group.end()) || std::find(group.begin(), group.end(), rank()) == group.end()) {
      throw RunError(fmt::format("rank {}", rank()), "a reduction's group must be ascending and hold this rank");
    }
    std::vector<float> own(values.begin(), values.end());
    for (const int peer : group) {
      if (peer == rank()) continue;
      announce(peer, QueueKind::collective, values.size_bytes());
      Payload copy = plain_memory(values.size_bytes());
      std::copy_n(reinterpret_cast<const std::byte*>(own.data()), copy.size, copy.data);
      post(peer, QueueKind::collective, std::move(copy));
    }
    std::fill(values.begin(), values.end(), 0.0F);
    bool first = true;
    for (const int peer : group) {
      Payload theirs;
      if (peer != rank()) theirs = incoming(peer, QueueKind::collective).receive(deadline).payload;
      const float* part = peer == rank() ? own.data() : reinterpret_cast<const float*>(theirs.data);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = first ? part[i] : values[i] + part[i];
      first = false;
      received_ += Bytes{static_cast<std::int64_t>(theirs.size)};
    }
  }

  // Dissemination (Hensgen, Finkel and Manber 1988): after round k each rank knows of 2^(k+1) others.
  void barrier(Clock::time_point deadline) override {
    for (int distance = 1; distance < size(); distance *= 2) {
      const int from = (rank() + size() - distance) % size();
      announce(from, QueueKind::collective, 0);
      post((rank() + distance) % size(), QueueKind::collective, {});
      (void)incoming(from, QueueKind::collective).receive(deadline);
    }
  }

  std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) override {
    if (rank() != 0) {
      send_text(text);
      barrier(deadline);
      return {};
    }
    std::vector<std::string> all{text};
    for (int peer = 1; peer < size(); ++peer) all.push_back(receive_text(peer, deadline));
    barrier(deadline);
    return all;
  }

  void abort(const std::string& reason) noexcept override {
    try {
      fabric_.stop(reason, true);
      keep_alive_->wake();
    } catch (...) {  // out of memory for the text: the others still meet their deadlines
    }
  }

  Bytes received_bytes() const override { return received_; }

 private:
  void require_peer(int peer) const {
    if (peer >= 0 && peer < size() && peer != rank()) return;
    throw RunError(fmt::format("rank {}", rank()), fmt::format("has no peer {} among {} ranks", peer, size()));
  }

  Incoming& incoming(int peer, QueueKind kind) {
    require_peer(peer);
    auto& queue = incoming_[{peer, kind}];
    if (!queue) queue = std::make_unique<Incoming>(fabric_, peer, kind);
    return *queue;
  }

  void post(int peer, QueueKind kind, Payload payload) {
    require_peer(peer);
    {
      const std::scoped_lock lock(fabric_.mutex);
      fabric_.throw_if_over();
    }
    auto& queue = outgoing_[{peer, kind}];
    if (!queue) queue = std::make_unique<Outgoing>(fabric_, peer, kind);
    queue->push(std::move(payload));
  }

  void announce(int peer, QueueKind kind, std::size_t bytes) {
    const bool own = kind == QueueKind::collective || !options_.allocate;
    incoming(peer, kind).expect(own ? plain_memory(bytes) : options_.allocate(bytes));
  }

  void send_text(const std::string& text) {
    Payload size = plain_memory(sizeof(std::uint64_t));
    const std::uint64_t bytes = text.size();
    std::copy_n(reinterpret_cast<const std::byte*>(&bytes), sizeof bytes, size.data);
    post(0, QueueKind::collective, std::move(size));
    Payload payload = plain_memory(text.size());
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), payload.data);
    post(0, QueueKind::collective, std::move(payload));
  }

  std::string receive_text(int peer, Clock::time_point deadline) {
    announce(peer, QueueKind::collective, sizeof(std::uint64_t));
    const Payload size = incoming(peer, QueueKind::collective).receive(deadline).payload;
    std::uint64_t bytes = 0;
    std::copy_n(size.data, sizeof bytes, reinterpret_cast<std::byte*>(&bytes));
    announce(peer, QueueKind::collective, bytes);
    const Payload text = incoming(peer, QueueKind::collective).receive(deadline).payload;
    return {reinterpret_cast<const char*>(text.data), text.size};
  }

  bool is_over() {
    const std::scoped_lock lock(fabric_.mutex);
    return fabric_.failure || fabric_.stop_reason;
  }

  GlooOptions options_;
  Fabric fabric_;
  std::map<std::pair<int, QueueKind>, std::unique_ptr<Outgoing>> outgoing_;
  std::map<std::pair<int, QueueKind>, std::unique_ptr<Incoming>> incoming_;
  std::optional<KeepAlive> keep_alive_;
  Bytes received_;
};

std::shared_ptr<::gloo::transport::Device> device_for(const std::string& address) {
  if (address.starts_with("127.") || address == "localhost") return Group::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  return interface != nullptr && *interface != '\0' ? Group::createDeviceForInterface(interface)
                                                    : Group::createDefaultDevice();
}

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(const GlooOptions& options, std::shared_ptr<RunStore> store) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<std::uint16_t>(options.port);
  store_options.waitWorkers = false;
  store_options.useLibUV = false;
  const auto start = std::chrono::milliseconds(static_cast<std::int64_t>(options.start_timeout.value * 1e3));
  store_options.timeout = start;
  try {
    auto group_store = c10::make_intrusive<c10d::TCPStore>(options.address, store_options);
    auto group_options = Group::Options::create(start);
    group_options->devices.push_back(device_for(options.address));
    auto group = c10::make_intrusive<Group>(group_store, options.rank, options.size, group_options);
    group->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(never));
    return std::make_unique<GlooTransport>(options, std::move(store), std::move(group));
  } catch (const std::exception& error) {
    throw RunError(fmt::format("rank {}", options.rank),
                   fmt::format("could not connect to the other {} ranks: {}", options.size - 1, first_line(error)));
  }
}

}  // namespace plumb::exec
