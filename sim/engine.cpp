#include "sim/engine.hpp"

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
#include "common/cluster/machine.hpp"
#include "sim/simgrid_versions.hpp"
#include "sim/ways.hpp"

namespace plumb::sim {
namespace {

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
      : platform_(platform), ways_(platform), engine_(new_engine()), resources_(ways_.resource_count()) {
    s4u::NetZone* root = make_root(*engine_);
    s4u::NetZone* fabric = make_star(root, "fabric");
    build_devices(fabric);
    build_ports(fabric);
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
    Slot slot{.id = id, .from = rank, .to = rank, .begin = clock, .end = clock + alone.value};
    slot.way.count = 1;
    slot.way.uses[0] = Ways::device(rank);
    start(std::move(slot));
  }

  void flow(ActivityId id, int from, int to, double bytes, Seconds latency, bool collective) {
    const double begin = s4u::Engine::get_clock() + latency.value;
    const Way way = ways_.between(from, to, collective);
    start({.id = id, .from = from, .to = to, .way = way, .begin = begin, .end = begin + bytes / way.rate});
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
  void build_devices(s4u::NetZone* fabric) {
    s4u::Host* cores = nullptr;  // of the machine, if its ranks share them
    for (int rank = 0; rank < platform_.ranks; ++rank) {
      const int machine = machine_of(rank, platform_.ranks_per_machine);
      const bool shared = shares_cores(platform_, machine);
      if (shared && rank % platform_.ranks_per_machine == 0) {
        cores =
            make_host(fabric, "cores" + std::to_string(machine))->set_core_count(platform_.cores_per_machine)->seal();
      }
      hosts_[0].push_back(make_host(fabric, "rank" + std::to_string(rank))->seal());
      devices_.push_back(shared ? cores : hosts_[0].back());
      resources_[Ways::device(rank)].shared = shared;
    }
  }

  // A port of the platform is a link; a rank has a host for each of its exits, whose route leads through these.
  void build_ports(s4u::NetZone* fabric) {
    std::vector<s4u::Link*> links;
    for (PortId port = 0; port < ways_.port_count(); ++port) {
      const double capacity = ways_.capacity(port);
      links.push_back(make_duplex(fabric, "port" + std::to_string(port),
                                  std::isfinite(capacity) ? capacity * parts_of_byte : endless,
                                  ways_.carries_latency(port) ? unit_latency : 0));
    }
    for (const Exit exit : exits) {
      std::vector<s4u::Host*>& hosts = hosts_.at(static_cast<std::size_t>(exit));
      const bool own = exit != Exit::message;
      for (int rank = 0; rank < platform_.ranks; ++rank) {
        std::vector<s4u::Link*> route;
        for (const PortId port : ways_.ports(rank, exit)) route.push_back(links[port]);
        if (route.empty()) break;
        if (own) {
          hosts.push_back(
              make_host(fabric, "exit" + std::to_string(static_cast<int>(exit)) + "of" + std::to_string(rank))->seal());
        }
        connect(fabric, hosts[static_cast<std::size_t>(rank)], route);
      }
    }
  }

  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  // An activity that has all that it uses to itself is timed: its end is known when it starts (no device and no port
  // changes its speed), and SimGrid need not know of it. It becomes a fluid if another one comes to one of its
  // resources before that end.
  struct Slot {
    ActivityId id = 0;
    int from = 0;  // of a computation both are its rank
    int to = 0;
    Way way = {};      // of a computation just its device
    double begin = 0;  // by SimGrid's clock, after the latency; while it is timed
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

  static std::span<const ResourceId> uses_of(const Slot& activity) {
    return {activity.way.uses.data(), activity.way.count};
  }

  void start(Slot activity) {
    const double clock = s4u::Engine::get_clock();
    bool alone = true;
    for (const ResourceId use : uses_of(activity)) {
      const std::size_t other = resources_[use].timed;
      if (other != none && under_way_[other].end > clock) make_fluid(other);
      alone = alone && !resources_[use].shared && resources_[use].fluids == 0 && resources_[use].timed == none;
    }
    const std::size_t slot = keep(std::move(activity));
    if (!alone) return make_fluid(slot);
    for (const ResourceId use : uses_of(under_way_[slot])) resources_[use].timed = slot;
    alarms_.push({.date = under_way_[slot].end, .slot = slot});
  }

  // What is left of it goes on in SimGrid.
  void make_fluid(std::size_t slot) {
    const Slot& activity = under_way_[slot];
    for (const ResourceId use : uses_of(activity)) {
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
    const std::vector<s4u::Host*>& hosts = hosts_.at(static_cast<std::size_t>(activity.way.exit));
    latency_of_next_ = std::max(0.0, activity.begin - clock);
    s4u::CommPtr comm = s4u::Comm::sendto_init(hosts[static_cast<std::size_t>(activity.from)],
                                               hosts[static_cast<std::size_t>(activity.to)]);
    comm->set_payload_size(std::isinf(activity.way.rate) ? 0 : payload(left * activity.way.rate));
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
    for (const ResourceId use : uses_of(activity)) {
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
    return resources_[activity.way.uses[0]].timed == alarm.slot && activity.end == alarm.date;
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
  Ways ways_;
  std::unique_ptr<s4u::Engine> engine_;
  std::vector<s4u::Host*> devices_;
  std::array<std::vector<s4u::Host*>, exits.size()> hosts_;  // by exit, then rank
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
  impl_->flow(id, from, to, static_cast<double>(bytes.value), latency, false);
}
void FluidEngine::flow(ActivityId id, int from, int to, double bytes, Seconds latency) {
  impl_->flow(id, from, to, bytes, latency, true);
}
Seconds FluidEngine::now() const { return impl_->now(); }
void FluidEngine::run(const Ended& ended) { impl_->run(ended); }

}  // namespace plumb::sim
