#include "sim/engine.hpp"

#include <simgrid/s4u.hpp>

#include <simgrid/version.h>
#include <simgrid/kernel/Timer.hpp>
#if SIMGRID_VERSION < 40000
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#endif
#include <xbt/log.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <exception>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace plumb::sim {
namespace {

namespace s4u = simgrid::s4u;

// What differs between SimGrid 3.32 and 4.0 stands in this block and nowhere else.
#if SIMGRID_VERSION >= 40000
s4u::NetZone* make_root(s4u::Engine& engine) { return engine.get_netzone_root(); }
s4u::NetZone* make_star(s4u::NetZone* root, const std::string& name) { return root->add_netzone_star(name); }
s4u::Host* make_host(s4u::NetZone* zone, const std::string& name) { return zone->add_host(name, 1.0); }
s4u::Link* make_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth, double latency) {
  return zone->add_split_duplex_link(name, bandwidth)->set_latency(latency)->seal();
}
void connect(s4u::NetZone* star, s4u::Host* host, s4u::Link* port) {
  star->add_route(host, nullptr, {{port, s4u::LinkInRoute::Direction::UP}});
}
template <class Callback>
void set_latency_factor(s4u::NetZone* root, const Callback& callback) {
  root->set_latency_factor_cb(callback);
}
template <class Callback>
void on_any_completion(const Callback& callback) {
  s4u::Exec::on_completion_cb(callback);
  s4u::Comm::on_completion_cb(callback);
}
void begin(s4u::Exec& exec) { exec.detach(); }
void begin(s4u::Comm& comm) { comm.start(); }
#else
s4u::NetZone* make_root(s4u::Engine&) { return s4u::create_full_zone("world"); }
s4u::NetZone* make_star(s4u::NetZone* root, const std::string& name) {
  return s4u::create_star_zone(name)->set_parent(root);
}
s4u::Host* make_host(s4u::NetZone* zone, const std::string& name) { return zone->create_host(name, 1.0); }
s4u::Link* make_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth, double latency) {
  return zone->create_split_duplex_link(name, bandwidth)->set_latency(latency)->seal();
}
void connect(s4u::NetZone* star, s4u::Host* host, s4u::Link* port) {
  star->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {{port, s4u::LinkInRoute::Direction::UP}});
}
template <class Callback>
void set_latency_factor(s4u::NetZone* root, const Callback& callback) {
  root->get_network_model()->set_lat_factor_cb(callback);
}
template <class Callback>
void on_any_completion(const Callback& callback) {
  s4u::Activity::on_completion_cb(callback);
}
void begin(s4u::Exec& exec) { exec.vetoable_start(); }
void begin(s4u::Comm& comm) { comm.vetoable_start(); }
#endif

// SimGrid keeps its options and signals for the life of the process: both are set once, with the first engine.
// CM02 without cross traffic and without TCP's window is exact; see tests/sim/test_simgrid_quirks.cpp for each option.
void configure_once(s4u::Engine& engine) {
  static bool configured = false;
  if (configured) return;
  configured = true;
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:no");
  engine.set_config("network/TCP-gamma:0");
}

s4u::Engine* new_engine() {
  static std::string name = "plumb";
  static char* arguments[] = {name.data(), nullptr};
  int count = 1;
  xbt_log_control_set("xbt_cfg.thres:warning");
  // It takes Ctrl-C and faults for itself, to print its state and to end with a status that is not ours.
  const std::array<int, 2> taken = {SIGINT, SIGSEGV};
  std::array<struct sigaction, 2> before = {};
  for (std::size_t i = 0; i < taken.size(); ++i) ::sigaction(taken[i], nullptr, &before[i]);
  auto* engine = new s4u::Engine(&count, arguments);
  for (std::size_t i = 0; i < taken.size(); ++i) ::sigaction(taken[i], &before[i], nullptr);
  configure_once(*engine);
  return engine;
}

// CM02 shares a port in inverse proportion to the latency of the routes. With 0.5 at each end every route counts 1, so
// that all share alike, and the latency factor is then a message's true latency in seconds.
constexpr double unit_latency = 0.5;

// Stands for an infinite bandwidth; messages through it carry no bytes.
constexpr double endless = 1e18;

// SimGrid sends whole units, and what is left of a message is no whole number of bytes.
constexpr double parts_of_byte = 1024;

std::uint64_t payload(double bytes) {
  constexpr double most = 1e18;
  return static_cast<std::uint64_t>(std::round(std::min(bytes * parts_of_byte, most)));
}

// Of the times that are told.
constexpr double picoseconds = 1e12;

}  // namespace

class FluidEngine::Impl {
 public:
  explicit Impl(const Platform& platform)
      : platform_(platform),
        engine_(new_engine()),
        resources_(static_cast<std::size_t>(platform.ranks) * uses_of_rank) {
    s4u::NetZone* root = make_root(*engine_);
    const int machines = (platform.ranks + platform.ranks_per_machine - 1) / platform.ranks_per_machine;
    s4u::NetZone* fabric = make_star(root, "fabric");
    for (int machine = 0; machine < machines; ++machine) build_machine(root, fabric, machine);
    fabric->seal();
    set_latency_factor(root, [this](double, const s4u::Host*, const s4u::Host*, const std::vector<s4u::Link*>&,
                                    const std::unordered_set<s4u::NetZone*>&) { return latency_of_next_; });
    root->seal();
    begin_ = s4u::Engine::get_clock();
    current_ = this;
    static const bool connected = [] {
      on_any_completion([](const s4u::Activity& activity) { current_->completed(activity); });
      return true;
    }();
    static_cast<void>(connected);
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // SimGrid crashes on activities that are dropped while under way, so what is left is run to its end, unheard.
  ~Impl() {
    ended_ = nullptr;
    alarms_ = {};
    disarm();
    if (free_.size() < under_way_.size()) engine_->run();
    retired_.clear();
    under_way_.clear();
    current_ = nullptr;
    engine_.reset();
  }

  void compute(ActivityId id, int rank, Seconds alone) {
    const double clock = s4u::Engine::get_clock();
    const std::size_t device = resource(rank, Use::device);
    start({.id = id, .from = rank, .to = rank, .uses = {device, device}, .begin = clock, .end = clock + alone.value});
  }

  void transfer(ActivityId id, int from, int to, Bytes bytes, Seconds latency) {
    const bool inside = one_machine(platform_, from, to);
    const double begin = s4u::Engine::get_clock() + latency.value;
    start({.id = id,
           .from = from,
           .to = to,
           .uses = {resource(from, inside ? Use::inside_out : Use::outside_out),
                    resource(to, inside ? Use::inside_in : Use::outside_in)},
           .begin = begin,
           .end = begin + (bytes / port_between(platform_, from, to).bandwidth).value});
  }

  [[nodiscard]] Seconds now() const {
    return {std::round((s4u::Engine::get_clock() - begin_) * picoseconds) / picoseconds};
  }

  void run(const Ended& ended) {
    ended_ = &ended;
    arm();
    engine_->run();
    retired_.clear();
    ended_ = nullptr;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (failures_ == 0) return;
    throw RunError("simulation", std::to_string(std::exchange(failures_, 0)) + " simulated activities failed");
  }

 private:
  void build_machine(s4u::NetZone* root, s4u::NetZone* fabric, int machine) {
    const std::string name = "machine" + std::to_string(machine);
    s4u::NetZone* zone = make_star(root, name);
    const int first = machine * platform_.ranks_per_machine;
    const int last = first + ranks_on_machine(platform_, machine);
    s4u::Host* shared = nullptr;
    if (shares_cores(platform_, machine)) {
      shared = make_host(zone, name + ".cores")->set_core_count(platform_.cores_per_machine)->seal();
    }
    for (int rank = first; rank < last; ++rank) {
      const std::string suffix = std::to_string(rank);
      s4u::Host* device = make_host(zone, "rank" + suffix)->seal();
      devices_.push_back(shared != nullptr ? shared : device);
      resources_[resource(rank, Use::device)].shared = shared != nullptr;
      inside_ports_.push_back(device);
      connect(zone, device, port(zone, "inside" + suffix, platform_.inside));
      s4u::Host* nic = make_host(fabric, "nic" + suffix)->seal();
      outside_ports_.push_back(nic);
      connect(fabric, nic, port(fabric, "outside" + suffix, platform_.outside));
    }
    zone->seal();
  }

  static s4u::Link* port(s4u::NetZone* zone, const std::string& name, const TransferCost& cost) {
    const bool usable = std::isfinite(cost.bandwidth.value) && cost.bandwidth.value > 0;
    return make_duplex(zone, name, usable ? cost.bandwidth.value * parts_of_byte : endless, unit_latency);
  }

  // What activities contend for: the device of each rank and both directions of its ports.
  enum class Use : std::uint8_t { device, inside_out, inside_in, outside_out, outside_in };
  static constexpr std::size_t uses_of_rank = 5;

  [[nodiscard]] static std::size_t resource(int rank, Use use) {
    return static_cast<std::size_t>(rank) * uses_of_rank + static_cast<std::size_t>(use);
  }

  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  // An activity that has all that it uses to itself is timed: its end is known when it starts (no device and no port
  // changes its speed), and SimGrid need not know of it. It becomes a fluid if another one comes to one of its
  // resources before that end.
  struct Slot {
    ActivityId id = 0;
    int from = 0;  // of a computation both are its rank
    int to = 0;
    std::array<std::size_t, 2> uses = {};  // of a computation twice the same
    double begin = 0;                      // by SimGrid's clock, after the latency; while it is timed
    double end = 0;
    s4u::ActivityPtr fluid = {};  // none while it is timed
  };

  struct Resource {
    bool shared = false;  // cores of several ranks: all is fluid from the start
    int fluids = 0;
    std::size_t timed = none;  // its slot
  };

  // When a timed activity ends; out of date if its slot has another end.
  struct Alarm {
    double date = 0;
    std::size_t slot = 0;
    bool operator>(const Alarm& other) const { return date > other.date; }
  };

  void start(Slot activity) {
    const double clock = s4u::Engine::get_clock();
    const std::array<std::size_t, 2> uses = activity.uses;
    bool alone = true;
    for (const std::size_t use : uses) {
      const std::size_t other = resources_[use].timed;
      if (other != none && under_way_[other].end > clock) make_fluid(other);
      alone = alone && !resources_[use].shared && resources_[use].fluids == 0 && resources_[use].timed == none;
    }
    const std::size_t slot = keep(std::move(activity));
    if (!alone) return make_fluid(slot);
    for (const std::size_t use : uses) resources_[use].timed = slot;
    alarms_.push({.date = under_way_[slot].end, .slot = slot});
  }

  // What is left of it goes on in SimGrid.
  void make_fluid(std::size_t slot) {
    const Slot& activity = under_way_[slot];
    for (const std::size_t use : activity.uses) {
      if (resources_[use].timed == slot) resources_[use].timed = none;
      ++resources_[use].fluids;
    }
    const double clock = s4u::Engine::get_clock();
    const double left = activity.end - std::max(clock, activity.begin);
    if (activity.from == activity.to) {
      s4u::ExecPtr exec = s4u::Exec::init();
      exec->set_flops_amount(left)->set_host(devices_[static_cast<std::size_t>(activity.from)]);
      launch(slot, *exec, exec);
      return;
    }
    const bool inside = one_machine(platform_, activity.from, activity.to);
    const std::vector<s4u::Host*>& ports = inside ? inside_ports_ : outside_ports_;
    const double bandwidth = port_between(platform_, activity.from, activity.to).bandwidth.value;
    latency_of_next_ = std::max(0.0, activity.begin - clock);
    s4u::CommPtr comm = s4u::Comm::sendto_init(ports[static_cast<std::size_t>(activity.from)],
                                               ports[static_cast<std::size_t>(activity.to)]);
    comm->set_payload_size(std::isinf(bandwidth) ? 0 : payload(left * bandwidth));
    launch(slot, *comm, comm);
  }

  template <class Fluid>
  void launch(std::size_t slot, Fluid& fluid, s4u::ActivityPtr held) {
    fluid.set_data(reinterpret_cast<void*>(slot));
    under_way_[slot].fluid = std::move(held);
    begin(fluid);
  }

  [[nodiscard]] std::size_t keep(Slot activity) {
    if (free_.empty()) {
      free_.push_back(under_way_.size());
      under_way_.emplace_back();
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    under_way_[slot] = std::move(activity);
    return slot;
  }

  // It has ended.
  void let_go(std::size_t slot) {
    Slot& activity = under_way_[slot];
    for (const std::size_t use : activity.uses) {
      if (activity.fluid) --resources_[use].fluids;
      if (!activity.fluid) resources_[use].timed = none;
    }
    ids_.push_back(activity.id);
    if (activity.fluid) retired_.push_back(std::move(activity.fluid));
    free_.push_back(slot);
  }

  // Called by SimGrid in its own order. An exception must not pass through SimGrid, and an activity must outlive this
  // call, so both are kept for later. The timer fires at the same moment, when all that ends then has ended.
  void completed(const s4u::Activity& activity) {
    const auto slot = reinterpret_cast<std::size_t>(activity.get_data<void>());
    if (activity.get_state() != s4u::Activity::State::FINISHED) ++failures_;
    let_go(slot);
    if (ids_.size() == 1) {
      simgrid::kernel::timer::Timer::set(s4u::Engine::get_clock(), [this] { deliver(); });
    }
  }

  // One SimGrid timer stands at the earliest end of a timed activity.
  void arm() {
    while (!alarms_.empty() && !is_due(alarms_.top())) alarms_.pop();
    if (timer_ != nullptr && !alarms_.empty() && timer_->get_date() == alarms_.top().date) return;
    disarm();
    if (alarms_.empty()) return;
    timer_ = simgrid::kernel::timer::Timer::set(alarms_.top().date, [this] {
      timer_ = nullptr;  // SimGrid deletes it
      ring();
    });
  }

  void disarm() {
    if (timer_ != nullptr) std::exchange(timer_, nullptr)->remove();
  }

  [[nodiscard]] bool is_due(const Alarm& alarm) const {
    const Slot& activity = under_way_[alarm.slot];
    return resources_[activity.uses[0]].timed == alarm.slot && activity.end == alarm.date;
  }

  // Sums of the same times in another order differ in their last bits: what ends in the same picosecond ends together.
  void ring() {
    const double moment = s4u::Engine::get_clock() + 1 / picoseconds;
    for (; !alarms_.empty() && alarms_.top().date <= moment; alarms_.pop()) {
      if (is_due(alarms_.top())) let_go(alarms_.top().slot);
    }
    deliver();
  }

  void deliver() {
    retired_.clear();
    delivered_.swap(ids_);
    std::sort(delivered_.begin(), delivered_.end());
    if (ended_ != nullptr && !delivered_.empty() && !error_ && failures_ == 0) {
      try {
        (*ended_)(delivered_);
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    delivered_.clear();
    arm();
  }

  static inline Impl* current_ = nullptr;

  Platform platform_;
  std::unique_ptr<s4u::Engine> engine_;
  std::vector<s4u::Host*> devices_;
  std::vector<s4u::Host*> inside_ports_;
  std::vector<s4u::Host*> outside_ports_;
  std::vector<Resource> resources_;
  double begin_ = 0;
  double latency_of_next_ = 0;
  std::vector<Slot> under_way_;
  std::vector<std::size_t> free_;
  std::vector<s4u::ActivityPtr> retired_;
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  simgrid::kernel::timer::Timer* timer_ = nullptr;
  std::vector<ActivityId> ids_;
  std::vector<ActivityId> delivered_;
  const Ended* ended_ = nullptr;
  std::exception_ptr error_;
  int failures_ = 0;
};

FluidEngine::FluidEngine(const Platform& platform) {
  require_valid(platform);
  impl_ = std::make_unique<Impl>(platform);
}
FluidEngine::~FluidEngine() = default;

void FluidEngine::compute(ActivityId id, int rank, Seconds alone) { impl_->compute(id, rank, alone); }
void FluidEngine::transfer(ActivityId id, int from, int to, Bytes bytes, Seconds latency) {
  impl_->transfer(id, from, to, bytes, latency);
}
Seconds FluidEngine::now() const { return impl_->now(); }
void FluidEngine::run(const Ended& ended) { impl_->run(ended); }

}  // namespace plumb::sim
