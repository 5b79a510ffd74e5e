#include "exec/transport/local/local.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "exec/host/pauses.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

template <class Content>
struct Message {
  Content content;
  Clock::time_point sent;
};

// What has been sent to one rank and not taken yet. One lock per receiver: ranks meet only where they talk.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, Channel>, std::deque<Message<Payload>>> queues;
  std::map<int, std::deque<Message<Parcel>>> parcels;
};

struct World {
  explicit World(int ranks) : mailboxes(static_cast<std::size_t>(ranks)), texts(static_cast<std::size_t>(ranks)) {}

  std::vector<Mailbox> mailboxes;

  std::mutex mutex;  // of all below; taken after a mailbox's, never before
  std::condition_variable changed;
  bool stopped = false;
  std::string reason;
  std::uint64_t barriers = 0;
  std::size_t at_barrier = 0;
  std::vector<std::string> texts;

  void stop(const std::string& why) {
    {
      const std::scoped_lock lock(mutex);
      if (stopped) return;
      stopped = true;
      reason = why;
    }
    changed.notify_all();
    for (Mailbox& mailbox : mailboxes) {
      // Taking the lock once makes sure that no rank is between its look at `stopped` and its wait.
      { const std::scoped_lock lock(mailbox.mutex); }
      mailbox.changed.notify_all();
    }
  }

  bool is_stopped() {
    const std::scoped_lock lock(mutex);
    return stopped;
  }
};

const char* name(Channel channel) {
  switch (channel) {
    case Channel::forward:
      return "forward";
    case Channel::backward:
      return "backward";
    case Channel::control:
      return "control";
    case Channel::collective:
      return "collective";
    case Channel::sums:
      return "sums";
    case Channel::gathers:
      return "gathers";
  }
  return "";
}

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->mailboxes.size()); }

  void send(int peer, Channel channel, Payload payload) override {
    put(mailbox(peer), &Mailbox::queues, std::pair(rank_, channel), std::move(payload));
  }

  void expect(int peer, Channel channel, std::size_t bytes, int count) override {
    (void)mailbox(peer);
    expected_[{peer, channel}].insert(expected_[{peer, channel}].end(), static_cast<std::size_t>(count), bytes);
  }

  bool has_message(int peer, Channel channel) override {
    throw_if_stopped();
    const auto expected = expected_.find({peer, channel});
    if (expected == expected_.end() || expected->second.empty()) return false;
    Mailbox& box = mailbox(rank_);
    const std::scoped_lock lock(box.mutex);
    return !box.queues[{peer, channel}].empty();
  }

  Received receive(int peer, Channel channel, Clock::time_point deadline) override {
    std::deque<std::size_t>& expected = expected_[{peer, channel}];
    if (expected.empty()) throw failure(fmt::format("receives from rank {} without expecting a message", peer));
    auto message = take(&Mailbox::queues, std::pair(peer, channel), deadline, [&] {
      return fmt::format("no message from rank {} on the {} channel ({} bytes)", peer, name(channel), expected.front());
    });
    if (message.content.size != expected.front()) {
      throw failure(fmt::format("expected {} bytes from rank {} on the {} channel, which sent {}", expected.front(),
                                peer, name(channel), message.content.size));
    }
    expected.pop_front();
    received_ += Bytes{static_cast<std::int64_t>(message.content.size)};
    return {std::move(message.content), message.sent};
  }

  void send_parcel(int peer, Parcel parcel) override {
    put(mailbox(peer), &Mailbox::parcels, rank_, std::move(parcel));
  }

  void expect_parcels(int peer, int count) override {
    (void)mailbox(peer);
    expected_parcels_[peer] += count;
  }

  bool has_parcel(int peer) override {
    throw_if_stopped();
    Mailbox& box = mailbox(rank_);
    const std::scoped_lock lock(box.mutex);
    return expected_parcels_[peer] > 0 && !box.parcels[peer].empty();
  }

  ReceivedParcel receive_parcel(int peer, Clock::time_point deadline) override {
    if (expected_parcels_[peer] == 0) throw failure(fmt::format("expects no parcel from rank {}", peer));
    auto message = take(&Mailbox::parcels, peer, deadline,
                        [&] { return fmt::format("no evicted activations from rank {}", peer); });
    --expected_parcels_[peer];
    received_ += bytes_of(message.content);
    return {std::move(message.content), message.sent};
  }

  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) override {
    Collectives(*this).all_reduce(group, std::as_writable_bytes(values), ElementType::fp32, deadline);
  }

  void barrier(Clock::time_point deadline) override {
    std::unique_lock lock(world_->mutex);
    wait_for_all(lock, deadline);
  }

  std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) override {
    std::unique_lock lock(world_->mutex);
    world_->texts[static_cast<std::size_t>(rank_)] = text;
    wait_for_all(lock, deadline);
    std::vector<std::string> all;
    if (rank_ == 0) all = std::exchange(world_->texts, std::vector<std::string>(world_->texts.size()));
    wait_for_all(lock, deadline);
    return all;
  }

  void abort(const std::string& reason) noexcept override {
    try {
      world_->stop(reason);
    } catch (...) {  // out of memory for the text: the others still meet their deadlines
    }
  }

  Bytes received_bytes() const override { return received_; }

  void poll() override { throw_if_stopped(); }

 private:
  [[nodiscard]] RunError failure(const std::string& problem) const {
    return RunError(fmt::format("rank {}", rank_), problem);
  }

  void throw_if_stopped() const {
    const std::scoped_lock lock(world_->mutex);
    if (world_->stopped) throw Stopped(world_->reason);
  }

  [[nodiscard]] Mailbox& mailbox(int peer) const {
    if (peer < 0 || peer >= size()) throw failure(fmt::format("has no peer {}: there are {} ranks", peer, size()));
    return world_->mailboxes[static_cast<std::size_t>(peer)];
  }

  template <class Queues, class Key, class Content>
  void put(Mailbox& box, Queues Mailbox::*queues, const Key& key, Content content) {
    throw_if_stopped();
    {
      const std::scoped_lock lock(box.mutex);
      (box.*queues)[key].push_back({std::move(content), Clock::now()});
    }
    box.changed.notify_one();
  }

  // The oldest message of a queue; when the rank had to wait for it, `sent` becomes the end of the wait.
  template <class Queues, class Key, class Missing>
  typename Queues::mapped_type::value_type take(Queues Mailbox::*queues, const Key& key, Clock::time_point deadline,
                                                const Missing& missing) {
    Mailbox& box = mailbox(rank_);
    std::unique_lock lock(box.mutex);
    auto& queue = (box.*queues)[key];
    const bool waited = queue.empty();
    while (queue.empty()) {
      if (world_->is_stopped()) {
        lock.unlock();
        throw_if_stopped();
      }
      (void)box.changed.wait_until(lock, wake_at(deadline));
      if (queue.empty() && has_passed(deadline)) {
        throw PastDeadline(failure(missing() + " before the deadline"));
      }
    }
    auto message = std::move(queue.front());
    queue.pop_front();
    if (waited) message.sent = Clock::now();
    return message;
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, const char* what, Condition condition) {
    while (!condition()) {
      if (world_->stopped) throw Stopped(world_->reason);
      (void)world_->changed.wait_until(lock, wake_at(deadline));
      if (!condition() && has_passed(deadline)) {
        const PastDeadline error(failure(fmt::format("waited for {} past the deadline", what)));
        // A barrier that a rank has turned away from would let the others through too early: nobody may go on.
        lock.unlock();
        world_->stop(error.what());
        throw error;
      }
    }
    if (world_->stopped) throw Stopped(world_->reason);
  }

  void wait_for_all(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
    const std::uint64_t mine = world_->barriers;
    if (++world_->at_barrier == world_->mailboxes.size()) {
      world_->at_barrier = 0;
      ++world_->barriers;
      world_->changed.notify_all();
    }
    wait(lock, deadline, "the other ranks at a barrier", [&] { return world_->barriers != mine; });
  }

  std::shared_ptr<World> world_;
  int rank_;
  std::map<std::pair<int, Channel>, std::deque<std::size_t>> expected_;
  std::map<int, int> expected_parcels_;  // by peer
  Bytes received_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_local_transports(int ranks) {
  const auto world = std::make_shared<World>(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) transports.push_back(std::make_unique<LocalTransport>(world, rank));
  return transports;
}

}  // namespace plumb::exec
