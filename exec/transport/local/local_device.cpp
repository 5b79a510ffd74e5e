// Ranks as threads that share a device: `local` carries the pointers between the hosts, streams copy what they point
// to.
#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "exec/host/pauses.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/receive_buffers.hpp"

namespace plumb::exec {
namespace {

// What a rank brings to a sum, or when it has done with the others' parts.
struct Part {
  float* data = nullptr;
  std::size_t count = 0;
  MomentPtr ready;
};

// Where the hosts of a group hand each other their parts.
class Meetings {
 public:
  // All parts, in the order of the group, once all are there. `check` throws if the run is over.
  template <class Check>
  std::vector<Part> exchange(const std::vector<int>& group, std::size_t position, Part mine, Clock::time_point deadline,
                             const Check& check) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[group];
    // The one before is left by all before the next begins.
    wait(lock, deadline, check, [&] { return meeting.leaving == 0; });
    meeting.parts.resize(group.size());
    meeting.parts[position] = std::move(mine);
    if (++meeting.arrived == group.size()) {
      meeting.leaving = group.size();
      changed_.notify_all();
    }
    wait(lock, deadline, check, [&] { return meeting.leaving > 0; });
    std::vector<Part> parts = meeting.parts;
    if (--meeting.leaving == 0) {
      meeting = {};
      changed_.notify_all();
    }
    return parts;
  }

 private:
  struct Meeting {
    std::vector<Part> parts = {};
    std::size_t arrived = 0;
    std::size_t leaving = 0;
  };

  template <class Check, class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, const Check& check, Condition condition) {
    constexpr std::chrono::milliseconds look{5};  // at whether the run is over
    while (!condition()) {
      check();
      if (has_passed(deadline)) {
        throw PastDeadline(RunError("", "waited for the other ranks of a reduction past the deadline"));
      }
      changed_.wait_for(lock, look);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::vector<int>, Meeting> meetings_;
};

// A value on its way. Its sender holds it until the receiver's copy has ended.
struct Sending {
  Payload payload;
  std::mutex mutex;
  MomentPtr copied;  // null until the receiver has put its copy on a stream
};

class LocalDeviceTransport final : public Transport {
 public:
  LocalDeviceTransport(std::unique_ptr<Transport> hosts, std::shared_ptr<Meetings> meetings, Device& device)
      : hosts_(std::move(hosts)),
        meetings_(std::move(meetings)),
        device_(device),
        forward_(device.make_stream(true)),
        backward_(device.make_stream(true)),
        evictions_(device.make_stream(false)),
        buffers_(device) {}

  int rank() const override { return hosts_->rank(); }
  int size() const override { return hosts_->size(); }

  void send(int peer, Channel channel, Payload payload) override {
    hosts_->send(peer, channel, between_hosts(channel) ? std::move(payload) : on_the_way(std::move(payload)));
  }
  void expect(int peer, Channel channel, std::size_t bytes, int count) override {
    hosts_->expect(peer, channel, bytes, count);
  }
  void receive_into(const ReceiveArena& arena, int peer, Channel channel,
                    std::span<const std::int32_t> slots) override {
    buffers_.plan(peer, channel, arena, slots);
  }
  Received receive(int peer, Channel channel, Clock::time_point deadline) override {
    Received received = hosts_->receive(peer, channel, deadline);
    if (between_hosts(channel)) return received;
    received.payload = copied(received.payload, buffers_.take(peer, channel, received.payload.size),
                              channel == Channel::forward ? *forward_ : *backward_);
    return received;
  }

  void send_parcel(int peer, Parcel parcel) override {
    for (Payload& part : parcel) part = on_the_way(std::move(part));
    hosts_->send_parcel(peer, std::move(parcel));
  }
  void expect_parcels(int peer, int count) override { hosts_->expect_parcels(peer, count); }
  bool has_parcel(int peer) override { return hosts_->has_parcel(peer); }
  ReceivedParcel receive_parcel(int peer, Clock::time_point deadline) override {
    ReceivedParcel received = hosts_->receive_parcel(peer, deadline);
    for (Payload& part : received.parcel) part = copied(part, buffers_.take(part.size), *evictions_);
    return received;
  }

  // Each rank makes the sum for itself; nobody writes it into its values before all have read these.
  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) override {
    const std::size_t position = position_in(group, rank());
    const std::vector<int> key(group.begin(), group.end());
    const auto exchanged = [&](MomentPtr ready) {
      return meetings_->exchange(key, position,
                                 {.data = values.data(), .count = values.size(), .ready = std::move(ready)}, deadline,
                                 [this] { hosts_->poll(); });
    };
    Stream& compute = device_.compute();
    const std::vector<Part> parts = exchanged(compute.record());
    const Payload sum = device_.allocate(values.size_bytes());
    auto* const sums = reinterpret_cast<float*>(sum.data);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (parts[part].count != values.size()) {
        throw failure(fmt::format("a reduction of {} values here and {} there", values.size(), parts[part].count));
      }
      compute.wait(parts[part].ready);
      if (part == 0) {
        compute.copy(sum.data, reinterpret_cast<const std::byte*>(parts[part].data), values.size_bytes());
      } else {
        compute.add(sums, parts[part].data, values.size());
      }
    }
    for (const Part& part : exchanged(compute.record())) compute.wait(part.ready);
    compute.copy(reinterpret_cast<std::byte*>(values.data()), sum.data, values.size_bytes());
    reduced_ += Bytes{static_cast<std::int64_t>((key.size() - 1) * values.size_bytes())};
  }

  void barrier(Clock::time_point deadline) override { hosts_->barrier(deadline); }
  std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) override {
    return hosts_->gather(text, deadline);
  }
  void abort(const std::string& reason) noexcept override { hosts_->abort(reason); }
  Bytes received_bytes() const override { return hosts_->received_bytes() + reduced_; }

  void poll() override {
    hosts_->poll();
    std::erase_if(sent_, [](const std::shared_ptr<Sending>& sending) {
      const std::scoped_lock lock(sending->mutex);
      return sending->copied && sending->copied->has_come();
    });
  }

 private:
  [[nodiscard]] RunError failure(const std::string& problem) const {
    return RunError(fmt::format("rank {}", rank()), problem);
  }

  [[nodiscard]] Payload on_the_way(Payload payload) {
    auto sending = std::make_shared<Sending>();
    sending->payload = std::move(payload);
    let_go_of_oldest();
    sent_.push_back(sending);
    const Payload& value = sending->payload;
    return {.owner = sending, .data = value.data, .size = value.size, .ready = value.ready};
  }

  // The host may be a whole step ahead of the device: not to hold all that it sends until then, compute waits for the
  // copy of what was sent several messages ago, which long since could begin. All waits are for moments that have been
  // recorded, so none of them is for itself.
  void let_go_of_oldest() {
    while (sent_.size() >= sent_held_at_most) {
      MomentPtr copied;
      {
        const std::scoped_lock lock(sent_.front()->mutex);
        copied = sent_.front()->copied;
      }
      if (!copied) return;
      device_.compute().wait(copied);
      sent_.pop_front();
    }
  }

  // `value` is one that `on_the_way` made.
  [[nodiscard]] static Payload copied(const Payload& value, Payload copy, Stream& stream) {
    stream.wait(value.ready);
    stream.wait(copy.ready);
    stream.copy(copy.data, value.data, value.size);
    copy.ready = stream.record();
    const auto sending = std::static_pointer_cast<Sending>(value.owner);
    const std::scoped_lock lock(sending->mutex);
    sending->copied = copy.ready;
    return copy;
  }

  std::unique_ptr<Transport> hosts_;
  std::shared_ptr<Meetings> meetings_;
  Device& device_;
  std::unique_ptr<Stream> forward_;
  std::unique_ptr<Stream> backward_;
  std::unique_ptr<Stream> evictions_;
  ReceiveBuffers buffers_;
  std::deque<std::shared_ptr<Sending>> sent_;
  Bytes reduced_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_local_device_transports(const std::vector<Device*>& devices) {
  const auto meetings = std::make_shared<Meetings>();
  auto hosts = make_local_transports(static_cast<int>(devices.size()));
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    transports.push_back(std::make_unique<LocalDeviceTransport>(std::move(hosts[rank]), meetings, *devices[rank]));
  }
  return transports;
}

}  // namespace plumb::exec
