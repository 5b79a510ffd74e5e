#include "exec/transport/gloo/gloo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "common/base/error.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/gloo/broken_pipes.hpp"
#include "exec/transport/gloo/gloo_error.hpp"
#include "exec/transport/gloo/gloo_parcels.hpp"
#include "exec/transport/gloo/gloo_queues.hpp"
#include "exec/transport/gloo/keep_alive.hpp"
#include "exec/transport/gloo/own_address.hpp"
#include "exec/transport/gloo/tcp_store.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;
using Group = c10d::ProcessGroupGloo;

constexpr auto drain_time = 5s;  // for the last sends when a rank leaves

QueueKind kind_of(Channel channel) {
  switch (channel) {
    case Channel::forward:
      return QueueKind::forward;
    case Channel::backward:
      return QueueKind::backward;
    case Channel::control:
      return QueueKind::control;
    case Channel::collective:
      return QueueKind::collective;
    case Channel::sums:
      return QueueKind::sums;
    case Channel::gathers:
      return QueueKind::gathers;
  }
  return QueueKind::control;
}

// Soon: the store takes note of what is said without an answer.
bool says_gone(RunStore& store, int peer) {
  constexpr int looks = 25;
  try {
    for (int look = 0; look < looks; ++look) {
      if (KeepAlive::is_gone(store.said(peer))) return true;
      std::this_thread::sleep_for(20ms);
    }
  } catch (const std::exception&) {  // whoever hosts it is gone without a word
  }
  return false;
}

std::string sockets_name(int rank) { return fmt::format("sockets/{}", rank); }

// Before the ranks have found each other, so that each finds there what the others say.
std::unique_ptr<HostLinks> make_links(const GlooOptions& options, RunStore& store) {
  std::unique_ptr<HostLinks> links;
  try {
    if (!options.sockets.empty()) {
      links = std::make_unique<HostLinks>(fmt::format("{}/{}", options.port, options.attempt), options.rank);
    }
  } catch (const RunError&) {  // all goes by Gloo then
  }
  store.put(sockets_name(options.rank), links ? options.sockets : "");
  return links;
}

class GlooTransport : public Transport {
 public:
  // Gives signs of life from now on; usable once it is `connected`.
  GlooTransport(const GlooOptions& options, std::shared_ptr<RunStore> store, std::unique_ptr<HostLinks> links)
      : options_(options) {
    fabric_.ending.rank = options.rank;
    fabric_.has_left = [store](int peer) { return says_gone(*store, peer); };
    fabric_.links = std::move(links);
    fabric_.is_near = [this, store](int peer) { return is_near(*store, peer); };
    keep_alive_.emplace(KeepAliveOptions{.rank = options.rank,
                                         .size = options.size,
                                         .silence_limit = options.silence_limit,
                                         .doing = options.doing,
                                         .describe = options.describe},
                        fabric_.ending, std::move(store));
  }

  ~GlooTransport() override {
    const Clock::time_point deadline = Clock::now() + drain_time;
    for (auto& entry : outgoing_) {
      if (!is_over()) entry.second->drain(deadline);
    }
    for (auto& entry : outgoing_parcels_) {
      if (!is_over()) entry.second->drain(deadline);
    }
    outgoing_.clear();
    outgoing_parcels_.clear();
    incoming_.clear();
    incoming_parcels_.clear();
    keep_alive_.reset();
  }

  void connected(c10::intrusive_ptr<Group> group) { fabric_.group = std::move(group); }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void send(int peer, Channel channel, Payload payload) override {
    release_delivered();
    post(peer, kind_of(channel), std::move(payload));
  }

  void expect(int peer, Channel channel, std::size_t bytes, int count) override {
    announce(peer, kind_of(channel), bytes, count);
  }

  bool has_message(int peer, Channel channel) override {
    require_running(peer);
    return incoming(peer, kind_of(channel)).has_arrived();
  }

  Received receive(int peer, Channel channel, Clock::time_point deadline) override {
    Received received = incoming(peer, kind_of(channel)).receive(deadline);
    release_delivered();
    received_ += Bytes{static_cast<std::int64_t>(received.payload.size)};
    return received;
  }

  void send_parcel(int peer, Parcel parcel) override {
    release_delivered();
    require_running(peer);
    auto& queue = outgoing_parcels_[peer];
    if (!queue) queue = std::make_unique<OutgoingParcels>(fabric_, peer);
    queue->push(std::move(parcel));
  }

  void expect_parcels(int peer, int count) override { incoming_parcels(peer).expect(count); }

  bool has_parcel(int peer) override {
    require_running(peer);
    return incoming_parcels(peer).has_arrived();
  }

  ReceivedParcel receive_parcel(int peer, Clock::time_point deadline) override {
    ReceivedParcel received = incoming_parcels(peer).receive(deadline);
    release_delivered();
    received_ += bytes_of(received.parcel);
    return received;
  }

  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) override {
    Collectives(*this).all_reduce(group, std::as_writable_bytes(values), ElementType::fp32, deadline);
  }

  // Dissemination (Hensgen, Finkel and Manber 1988): after round k each rank knows of 2^(k+1) others.
  void barrier(Clock::time_point deadline) override {
    for (int distance = 1; distance < size(); distance *= 2) {
      const int from = (rank() + size() - distance) % size();
      announce(from, QueueKind::control, 0, 1);
      post((rank() + distance) % size(), QueueKind::control, {});
      (void)incoming(from, QueueKind::control).receive(deadline);
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
      fabric_.ending.stop(reason, true);
      keep_alive_->wake();
    } catch (...) {  // out of memory for the text: the others still meet their deadlines
    }
  }

  Bytes received_bytes() const override { return received_; }

  void poll() override {
    const std::scoped_lock lock(fabric_.ending.mutex);
    fabric_.ending.throw_if_over();
  }

 private:
  // On the rank's own thread, whose memory the payloads count as.
  void release_delivered() {
    for (auto& entry : outgoing_) entry.second->release();
    for (auto& entry : outgoing_parcels_) entry.second->release();
  }

  // On the rank's own thread.
  bool is_near(RunStore& store, int peer) {
    if (!fabric_.links) return false;
    const auto [known, is_new] = near_.try_emplace(peer, false);
    if (is_new) known->second = store.find(sockets_name(peer)) == options_.sockets;
    return known->second;
  }

  void require_peer(int peer) const {
    if (peer >= 0 && peer < size() && peer != rank()) return;
    throw RunError(fmt::format("rank {}", rank()), fmt::format("has no peer {} among {} ranks", peer, size()));
  }

  Incoming& incoming(int peer, QueueKind kind) {
    require_peer(peer);
    auto& queue = incoming_[{peer, kind}];
    if (!queue) {
      const bool payload = kind == QueueKind::forward || kind == QueueKind::backward;
      const bool own = !payload || !options_.allocate;
      queue = std::make_unique<Incoming>(fabric_, peer, kind, own ? plain_memory : options_.allocate);
    }
    return *queue;
  }

  IncomingParcels& incoming_parcels(int peer) {
    require_peer(peer);
    auto& queue = incoming_parcels_[peer];
    if (!queue) {
      queue = std::make_unique<IncomingParcels>(fabric_, peer,
                                                options_.allocate_part ? options_.allocate_part : plain_memory);
    }
    return *queue;
  }

  void require_running(int peer) {
    require_peer(peer);
    const std::scoped_lock lock(fabric_.ending.mutex);
    fabric_.ending.throw_if_over();
  }

  void post(int peer, QueueKind kind, Payload payload) {
    require_running(peer);
    auto& queue = outgoing_[{peer, kind}];
    if (!queue) queue = std::make_unique<Outgoing>(fabric_, peer, kind);
    queue->push(std::move(payload));
  }

  void announce(int peer, QueueKind kind, std::size_t bytes, int count) {
    try {
      incoming(peer, kind).expect(bytes, count);
    } catch (const RunError&) {
      throw;
    } catch (const std::exception& error) {  // Gloo's, where the connection is closed
      throw RunError(fmt::format("rank {}", rank()), fmt::format("lost rank {} ({})", peer, gloo_cause(error)));
    }
  }

  void send_text(const std::string& text) {
    Payload size = plain_memory(sizeof(std::uint64_t));
    const std::uint64_t bytes = text.size();
    std::copy_n(reinterpret_cast<const std::byte*>(&bytes), sizeof bytes, size.data);
    post(0, QueueKind::control, std::move(size));
    Payload payload = plain_memory(text.size());
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), payload.data);
    post(0, QueueKind::control, std::move(payload));
  }

  std::string receive_text(int peer, Clock::time_point deadline) {
    announce(peer, QueueKind::control, sizeof(std::uint64_t), 1);
    const Payload size = incoming(peer, QueueKind::control).receive(deadline).payload;
    std::uint64_t bytes = 0;
    std::copy_n(size.data, sizeof bytes, reinterpret_cast<std::byte*>(&bytes));
    announce(peer, QueueKind::control, bytes, 1);
    const Payload text = incoming(peer, QueueKind::control).receive(deadline).payload;
    return {reinterpret_cast<const char*>(text.data), text.size};
  }

  bool is_over() {
    const std::scoped_lock lock(fabric_.ending.mutex);
    return fabric_.ending.failure || fabric_.ending.stop_reason;
  }

  GlooOptions options_;
  GlooFabric fabric_;
  std::map<std::pair<int, QueueKind>, std::unique_ptr<Outgoing>> outgoing_;
  std::map<std::pair<int, QueueKind>, std::unique_ptr<Incoming>> incoming_;
  std::map<int, std::unique_ptr<OutgoingParcels>> outgoing_parcels_;
  std::map<int, std::unique_ptr<IncomingParcels>> incoming_parcels_;
  std::map<int, bool> near_;
  std::optional<KeepAlive> keep_alive_;
  Bytes received_;
};

std::shared_ptr<::gloo::transport::Device> device_for(const std::string& address) {
  if (is_loopback(address)) return Group::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return Group::createDeviceForInterface(interface);
  const std::string own = address_for_others(address_towards(address), own_addresses());
  return own.empty() ? Group::createDefaultDevice() : Group::createDeviceForHostname(own);
}

// Connects to all other ranks. Throws RunError.
c10::intrusive_ptr<Group> connect_group(const GlooOptions& options) {
  auto of_group = connect_store(options.address, options.port, options.start_timeout);
  const auto start = std::chrono::milliseconds(static_cast<std::int64_t>(options.start_timeout.value * 1e3));
  try {
    auto group_store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("plumb/{}/gloo", options.attempt), std::move(of_group));
    const WithoutBrokenPipes of_its_threads;
    auto group_options = Group::Options::create(start);
    group_options->devices.push_back(device_for(options.address));
    return c10::make_intrusive<Group>(group_store, options.rank, options.size, group_options);
  } catch (const std::exception& error) {
    throw RunError(fmt::format("rank {}", options.rank),
                   fmt::format("could not connect to the other {} ranks: {}", options.size - 1, gloo_cause(error)),
                   is_loopback(options.address)
                       ? ""
                       : "do all of them run? GLOO_SOCKET_IFNAME names the network interface on which they can");
  }
}

}  // namespace

// Nothing ends Gloo's call: it is made on a thread that is left behind if the run ends before.
std::unique_ptr<Transport> make_gloo_transport(const GlooOptions& options, std::shared_ptr<RunStore> store) {
  constexpr auto look_every = 10ms;
  std::unique_ptr<HostLinks> links = make_links(options, *store);
  auto transport = std::make_unique<GlooTransport>(options, std::move(store), std::move(links));
  const GlooOptions where{.rank = options.rank,
                          .size = options.size,
                          .address = options.address,
                          .port = options.port,
                          .attempt = options.attempt,
                          .start_timeout = options.start_timeout};
  std::packaged_task<c10::intrusive_ptr<Group>()> connect([where] { return connect_group(where); });
  auto group = connect.get_future();
  std::thread worker(std::move(connect));
  try {
    while (group.wait_for(look_every) != std::future_status::ready) transport->poll();
  } catch (...) {
    worker.detach();
    throw;
  }
  worker.join();
  transport->connected(group.get());
  return transport;
}

}  // namespace plumb::exec
