#include "exec/calibrate/device_rates.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/quantile.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/nccl/nccl.hpp"
#include "exec/transport/rendezvous.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t warm_up = 5;  // the first messages connect
constexpr std::size_t samples_of_a_size = 25;
constexpr std::chrono::seconds patience{60};
constexpr std::chrono::microseconds look_every{20};
constexpr double highest_bandwidth = 1e14;  // bytes per second: above this it is noise

void wait_for(const MomentPtr& moment, Transport* transport) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!has_come(moment)) {
    if (transport != nullptr) transport->poll();
    if (Clock::now() > deadline) throw RunError("measuring", "a device does not come to an end");
    std::this_thread::sleep_for(look_every);
  }
}

// Between each mark and the next, without those that warm up; all have come.
Seconds median_between(const Device& device, const std::vector<MomentPtr>& marks) {
  std::vector<Seconds> times;
  for (std::size_t i = warm_up; i + 1 < marks.size(); ++i) {
    times.push_back(device.time_of(*marks[i + 1]) - device.time_of(*marks[i]));
  }
  return median(times);
}

MeasuredRate rate_of(std::string operation, int ranks, std::vector<RateSample> samples) {
  const TransferCost cost = fitted(samples);
  return {.operation = std::move(operation), .ranks = ranks, .cost = cost, .samples = std::move(samples)};
}

RateSample sample(std::size_t bytes, Seconds time) {
  return {.bytes = {static_cast<std::int64_t>(bytes)}, .time = time};
}

// Of one device on its compute stream.
template <class Work>
MeasuredRate rate_alone(Device& device, const std::string& operation, const std::vector<std::size_t>& sizes,
                        const Work& work) {
  Stream& compute = device.compute();
  std::vector<RateSample> samples;
  for (const std::size_t bytes : sizes) {
    const Payload to = device.allocate(bytes);
    const Payload from = device.allocate(bytes);
    device.align_clock();
    std::vector<MomentPtr> marks{compute.record()};
    for (std::size_t i = 0; i < warm_up + samples_of_a_size; ++i) {
      work(to, from);
      marks.push_back(compute.record());
    }
    wait_for(marks.back(), nullptr);
    samples.push_back(sample(bytes, median_between(device, marks)));
  }
  return rate_of(operation, 1, std::move(samples));
}

void measure_alone(Device& device, const std::vector<std::size_t>& sizes, DeviceRates& into) {
  device.enter();
  Stream& compute = device.compute();
  into.rates.push_back(rate_alone(device, "copy", sizes, [&](const Payload& to, const Payload& from) {
    compute.copy(to.data, from.data, to.size);
  }));
  into.rates.push_back(rate_alone(device, "add", sizes, [&](const Payload& to, const Payload& from) {
    compute.add(reinterpret_cast<float*>(to.data), reinterpret_cast<const float*>(from.data), to.size / sizeof(float));
  }));
}

// There and back, time and again, between two ranks. On each its own; the first knows how long it took.
class PingPong {
 public:
  PingPong(Transport& transport, Device& device) : transport_(transport), device_(device) {}

  // One way of a message.
  Seconds run(std::size_t bytes) {
    const RankLaunches launches = plan();
    Stream& compute = device_.compute();
    Payload ball = device_.allocate(bytes);
    device_.align_clock();
    transport_.begin_step(launches, std::array{0, 1});
    transport_.expect(peer(), Channel::forward, bytes, trips);
    std::vector<MomentPtr> marks{ball.ready = compute.record()};
    for (int trip = 0; trip < trips; ++trip) {
      if (transport_.rank() == 0) {
        transport_.send(peer(), Channel::forward, std::move(ball));
        transport_.reach(2 * trip);
      }
      ball = received(transport_.rank() == 0 ? 2 * trip + 1 : 2 * trip);
      marks.push_back(ball.ready = compute.record());
      if (transport_.rank() == 0) continue;
      transport_.send(peer(), Channel::forward, std::move(ball));
      transport_.reach(2 * trip + 1);
    }
    for (const Launched& launched : transport_.end_step()) wait_for(launched.end, &transport_);
    wait_for(marks.back(), &transport_);
    return median_between(device_, marks) / 2;
  }

 private:
  static constexpr int trips = static_cast<int>(warm_up + samples_of_a_size);

  [[nodiscard]] int peer() const { return 1 - transport_.rank(); }

  [[nodiscard]] Payload received(std::int32_t place) {
    transport_.reach(place);
    transport_.poll();
    Payload payload = transport_.receive(peer(), Channel::forward, Clock::now() + patience).payload;
    device_.compute().wait(payload.ready);
    return payload;
  }

  // Where messages are launched, all go down; on a rank one after the other.
  [[nodiscard]] RankLaunches plan() const {
    RankLaunches launches;
    for (int place = 0; place < 2 * trips; ++place) {
      const bool sends = place % 2 == transport_.rank();
      const Action action{sends ? ActionKind::send_forward : ActionKind::receive_forward, 0, place};
      launches.push_back({.use = CommunicatorUse::down,
                          .operations = {{.action = action, .index = place, .peer = peer(), .sends = sends}},
                          .place = place});
    }
    return launches;
  }

  Transport& transport_;
  Device& device_;
};

// Between the first two ranks; the others stand by.
void measure_sends(Transport& transport, Device& device, const std::vector<std::size_t>& sizes, DeviceRates& into) {
  std::vector<RateSample> samples;
  for (const std::size_t bytes : sizes) {
    transport.barrier(Clock::now() + patience);
    if (transport.rank() < 2) samples.push_back(sample(bytes, PingPong(transport, device).run(bytes)));
  }
  if (transport.rank() != 0) return;
  into.rates.push_back(rate_of("send", 2, samples));
  into.transfer = into.rates.back().cost;
}

// 2, 4, … and all.
std::vector<CommunicatorSpec> communicators_of(int ranks) {
  std::vector<CommunicatorSpec> all{{CommunicatorUse::down, {0, 1}}};
  for (int size = 2;; size = std::min(2 * size, ranks)) {
    all.push_back({CommunicatorUse::data, ranks_from(0, size)});
    if (size == ranks) return all;
  }
}

// `bytes`: of the larger of what a rank gives and gets, as NCCL's own tests count.
Seconds time_of_collective(Transport& transport, Device& device, Collective kind, const CommunicatorSpec& over,
                           std::size_t bytes) {
  const Payload input = device.allocate(bytes);
  const Payload output = device.allocate(bytes);
  const bool parts = kind != Collective::all_reduce;
  CollectiveCall call{.kind = kind,
                      .use = over.use,
                      .group = over.ranks,
                      .input = input.data,
                      .output = output.data,
                      .count = bytes / sizeof(float) / (parts ? over.ranks.size() : 1),
                      .type = ElementType::fp32,
                      .ready = device.compute().record()};
  device.align_clock();
  std::vector<MomentPtr> marks;
  for (std::size_t i = 0; i <= warm_up + samples_of_a_size; ++i) marks.push_back(transport.collective(call));
  transport.await(marks.back(), Clock::now() + patience);
  return median_between(device, marks);
}

void measure_collectives(Transport& transport, Device& device, const std::vector<CommunicatorSpec>& communicators,
                         const std::vector<std::size_t>& sizes, DeviceRates& into) {
  const std::pair<const char*, Collective> kinds[] = {{"all-reduce", Collective::all_reduce},
                                                      {"all-gather", Collective::all_gather},
                                                      {"reduce-scatter", Collective::reduce_scatter}};
  for (std::size_t index = 1; index < communicators.size(); ++index) {
    const int ranks = static_cast<int>(communicators[index].ranks.size());
    for (const auto& [name, kind] : kinds) {
      std::vector<RateSample> samples;
      for (const std::size_t bytes : sizes) {
        transport.barrier(Clock::now() + patience);
        if (transport.rank() >= ranks) continue;
        samples.push_back(sample(bytes, time_of_collective(transport, device, kind, communicators[index], bytes)));
      }
      if (transport.rank() == 0) into.rates.push_back(rate_of(name, ranks, std::move(samples)));
    }
  }
}

using OnRank = std::function<void(Transport& transport, Device& device)>;

// Each thread makes its own transport: they wait for each other.
void run_over_nccl(const std::vector<std::unique_ptr<Device>>& devices, const NcclOptions& options,
                   const OnRank& on_rank) {
  const int ranks = static_cast<int>(devices.size());
  Board board;
  auto controls = make_local_transports(ranks);
  run_on_threads(make_local_transports(ranks), [&](Transport& place) {
    const auto rank = static_cast<std::size_t>(place.rank());
    devices[rank]->enter();
    const auto transport = make_nccl_transport(options, std::move(controls[rank]), *devices[rank], board.rendezvous());
    try {
      on_rank(*transport, *devices[rank]);
    } catch (const std::exception& error) {
      transport->abort(error.what());  // what spins on the other devices ends
      throw;
    }
  });
}

}  // namespace

TransferCost fitted(const std::vector<RateSample>& samples) {
  // Of Σ ((a + b·x − t) / t)², with weights 1/t².
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wt = 0;
  double wxt = 0;
  for (const RateSample& one : samples) {
    const double x = static_cast<double>(one.bytes.value);
    const double t = std::max(one.time.value, 1e-9);
    const double weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double slope = std::max((w * wxt - wx * wt) / (w * wxx - wx * wx), 1 / highest_bandwidth);
  return {.latency = {std::max(0.0, (wt - slope * wx) / w)}, .bandwidth = {1 / slope}};
}

DeviceRates measure_rates(const std::vector<std::unique_ptr<Device>>& devices, const RateOptions& options) {
  DeviceRates measured;
  // On a thread of its own: entering a device changes what the thread computes on.
  run_on_threads(make_local_transports(1),
                 [&](Transport&) { measure_alone(*devices.front(), options.sizes, measured); });
  if (devices.size() < 2) return measured;
  if (options.transport == "nccl") {
    const std::vector<CommunicatorSpec> communicators = communicators_of(static_cast<int>(devices.size()));
    const NcclOptions nccl{
        .communicators = communicators, .message_bytes = options.sizes, .library_file = options.nccl_library};
    run_over_nccl(devices, nccl, [&](Transport& transport, Device& device) {
      measure_sends(transport, device, options.sizes, measured);
      measure_collectives(transport, device, communicators, options.sizes, measured);
    });
    return measured;
  }
  const std::vector<Device*> two{devices[0].get(), devices[1].get()};
  run_on_threads(make_local_device_transports(two), [&](Transport& transport) {
    Device& device = *two[static_cast<std::size_t>(transport.rank())];
    device.enter();
    measure_sends(transport, device, options.sizes, measured);
  });
  return measured;
}

}  // namespace plumb::exec
