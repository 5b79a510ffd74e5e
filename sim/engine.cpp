#include "sim/engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>
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
  Impl(const Platform& platform, std::span<const Disturbance> disturbances)
      : platform_(platform), ways_(platform), engine_(new_engine()), resources_(ways_.resource_count()) {
    make_gates(disturbances);
    s4u::NetZone* root = make_root(*engine_);
    s4u::NetZone* fabric = make_star(root, "fabric");
    build_devices(fabric);
    build_ports(fabric);
    fabric->seal();
    set_latency_factor(root, [this](double, const s4u::Host*, const s4u::Host*, const std::vector<s4u::Link*>&,
                                    const std::unordered_set<s4u::NetZone*>&) { return latency_of_next_; });
    root->seal();
    begin_ = s4u::Engine::get_clock();
    for (auto& [thing, gate] : gates_) open(gate);
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
    forget_changes();
    if (free_.size() < under_way_.size()) engine_->run();
    retired_.clear();
    cancelled_.clear();
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
  // What has a speed of its own: a device, what a rank has of a port (`other`), or the way to another rank (`other`).
  struct Thing {
    Disturbed what = Disturbed::device;
    int rank = 0;
    int other = 0;
    auto operator<=>(const Thing&) const = default;
  };

  // What changes its speed at dates. Everything on it is fluid from the start.
  struct Gate {
    std::vector<SpeedChange> changes = {};
    std::size_t next = 0;  // change
    simgrid::kernel::timer::Timer* timer = nullptr;
    double factor = 1;  // above zero: of what stands still that of before, since nothing is on it
    bool still = false;
    std::vector<s4u::Link*> links = {};
    s4u::Host* host = nullptr;
  };

  void make_gates(std::span<const Disturbance> disturbances) {
    std::map<Thing, std::vector<Disturbance>> by_thing;
    for (const Disturbance& disturbance : disturbances) {
      const int rank = disturbance.rank;
      if (disturbance.what == Disturbed::device) by_thing[{Disturbed::device, rank, 0}].push_back(disturbance);
      if (disturbance.what == Disturbed::way) {
        const auto [low, high] = std::minmax(rank, disturbance.peer);
        by_thing[{Disturbed::way, low, high}].push_back(disturbance);
      }
      const bool shared = disturbance.what == Disturbed::uplink || disturbance.what == Disturbed::leaf;
      for (const PortId port : disturbed_ports(disturbance)) {
        const Thing thing = shared ? Thing{disturbance.what, 0, static_cast<int>(port)}
                                   : Thing{Disturbed::ports, rank, static_cast<int>(port)};
        by_thing[thing].push_back(disturbance);
      }
    }
    for (const auto& [thing, all] : by_thing) gates_[thing].changes = speed_changes(all);
  }

  // Of a rank its lanes, its port and what it has of its NIC; what many share beyond these is disturbed for all.
  [[nodiscard]] std::set<PortId> disturbed_ports(const Disturbance& disturbance) const {
    std::set<PortId> ports;
    const auto disturbs = [&](PortId port) {
      switch (disturbance.what) {
        case Disturbed::ports:
          return ways_.is_of_rank(port) || ways_.is_nic(port);
        case Disturbed::outside_ports:
          return ways_.is_nic(port);
        case Disturbed::uplink:
          return ways_.is_uplink(port);
        case Disturbed::leaf:
          return ways_.is_leaf(port);
        default:
          return false;
      }
    };
    for (const Exit exit : exits) {
      for (const PortId port : ways_.ports(disturbance.rank, exit)) {
        if (disturbs(port)) ports.insert(port);
      }
    }
    return ports;
  }

  // One for each change of the device.
  [[nodiscard]] std::vector<double> speeds_of(int rank) const {
    const auto gate = gates_.find({Disturbed::device, rank, 0});
    if (gate == gates_.end()) return {1.0};
    std::vector<double> speeds;
    for (const SpeedChange& change : gate->second.changes) speeds.push_back(change.factor > 0 ? change.factor : 1);
    return speeds;
  }

  // Both directions. SimGrid 4.0 bounds a flow for life by its links' bandwidth at its start, so the bandwidth stays
  // and what is shared of it changes.
  static s4u::Link* make_gated(s4u::NetZone* fabric, const std::string& name, double bandwidth, Gate& gate) {
    const auto share = [&gate](double capacity, int) { return capacity * gate.factor; };
    s4u::SplitDuplexLink* link = make_shared_duplex(fabric, name, capacity_of(bandwidth), share);
    gate.links.push_back(link->get_link_up());
    gate.links.push_back(link->get_link_down());
    return link;
  }

  // Applies what is due and sets the timer for what follows.
  void open(Gate& gate) {
    const double clock = s4u::Engine::get_clock();
    for (; gate.next < gate.changes.size() && begin_ + gate.changes[gate.next].date.value <= clock; ++gate.next) {
      const SpeedChange& change = gate.changes[gate.next];
      gate.still = change.factor == 0;
      if (gate.still) continue;
      gate.factor = change.factor;
      if (gate.host != nullptr) gate.host->set_pstate(gate.next);
      for (s4u::Link* link : gate.links) link->set_bandwidth(link->get_bandwidth());  // wakes the solver
    }
    if (gate.still) hold_all_on_still();
    if (!gate.still) resume_all();
    if (gate.next == gate.changes.size()) return;
    gate.timer = simgrid::kernel::timer::Timer::set(begin_ + gate.changes[gate.next].date.value, [this, &gate] {
      gate.timer = nullptr;  // SimGrid deletes it
      open(gate);
    });
  }

  // A timer that is left over would move the clock on.
  void forget_changes() {
    for (auto& [thing, gate] : gates_) {
      if (gate.timer != nullptr) std::exchange(gate.timer, nullptr)->remove();
    }
    for (auto& [slot, timer] : delays_) timer->remove();
    delays_.clear();
  }

  void build_devices(s4u::NetZone* fabric) {
    s4u::Host* cores = nullptr;  // of the machine, if its ranks share them
    for (int rank = 0; rank < platform_.ranks; ++rank) {
      const int machine = machine_of(rank, platform_.ranks_per_machine);
      const bool shared = shares_cores(platform_, machine);
      if (shared && rank % platform_.ranks_per_machine == 0) {
        cores =
            make_host(fabric, "cores" + std::to_string(machine))->set_core_count(platform_.cores_per_machine)->seal();
      }
      hosts_[0].push_back(make_host(fabric, "rank" + std::to_string(rank), speeds_of(rank))->seal());
      if (const auto gate = gates_.find({Disturbed::device, rank, 0}); gate != gates_.end()) {
        gate->second.host = hosts_[0].back();
      }
      devices_.push_back(shared ? cores : hosts_[0].back());
      resources_[Ways::device(rank)].shared = shared;
    }
  }

  static double capacity_of(double bandwidth) { return std::isfinite(bandwidth) ? bandwidth * parts_of_byte : endless; }

  // Of what many share; none if nothing disturbs it.
  [[nodiscard]] Gate* shared_gate(PortId port) {
    for (const Disturbed what : {Disturbed::uplink, Disturbed::leaf}) {
      const auto found = gates_.find({what, 0, static_cast<int>(port)});
      if (found != gates_.end()) return &found->second;
    }
    return nullptr;
  }

  // A port of the platform is a link; a rank has a host for each of its exits, whose route leads through these.
  void build_ports(s4u::NetZone* fabric) {
    for (PortId port = 0; port < ways_.port_count(); ++port) {
      if (Gate* gate = shared_gate(port)) {
        links_.push_back(make_gated(fabric, "port" + std::to_string(port), ways_.capacity(port), *gate));
        continue;
      }
      links_.push_back(make_duplex(fabric, "port" + std::to_string(port), capacity_of(ways_.capacity(port)),
                                   ways_.carries_latency(port) ? unit_latency : 0));
    }
    for (auto& [thing, gate] : gates_) {
      if (thing.what != Disturbed::ports) continue;
      const auto port = static_cast<PortId>(thing.other);
      const std::string name = "rank" + std::to_string(thing.rank) + "at" + std::to_string(port);
      parts_of_ports_[{thing.rank, port}] = make_gated(fabric, name, ways_.capacity(port), gate);
    }
    for (const Exit exit : exits) {
      std::vector<s4u::Host*>& hosts = hosts_.at(static_cast<std::size_t>(exit));
      const bool own = exit != Exit::message;
      for (int rank = 0; rank < platform_.ranks; ++rank) {
        const std::vector<s4u::Link*> route = route_of(rank, exit);
        if (route.empty()) break;
        if (own) {
          hosts.push_back(
              make_host(fabric, "exit" + std::to_string(static_cast<int>(exit)) + "of" + std::to_string(rank))->seal());
        }
        connect(fabric, hosts[static_cast<std::size_t>(rank)], route);
      }
    }
    for (auto& [thing, gate] : gates_) {
      if (thing.what == Disturbed::way) build_way(fabric, thing, gate);
    }
  }

  [[nodiscard]] std::vector<s4u::Link*> route_of(int rank, Exit exit) const {
    std::vector<s4u::Link*> route;
    for (const PortId port : ways_.ports(rank, exit)) {
      route.push_back(links_[port]);
      if (const auto part = parts_of_ports_.find({rank, port}); part != parts_of_ports_.end()) {
        route.push_back(part->second);
      }
    }
    return route;
  }

  // Messages of a disturbed way leave by hosts of their own, through the same ports; the lower rank's has the way.
  void build_way(s4u::NetZone* fabric, const Thing& thing, Gate& gate) {
    for (const bool collective : {false, true}) {
      const Way way = ways_.between(thing.rank, thing.other, collective);
      if (way_ends_.contains({thing.rank, thing.other, way.exit})) continue;
      if (route_of(thing.rank, way.exit).empty()) continue;
      for (const auto& [rank, peer] : {std::pair{thing.rank, thing.other}, std::pair{thing.other, thing.rank}}) {
        const std::string name = "way" + std::to_string(static_cast<int>(way.exit)) + "of" + std::to_string(rank) +
                                 "to" + std::to_string(peer);
        std::vector<s4u::Link*> route = route_of(rank, way.exit);
        if (rank == thing.rank) route.push_back(make_gated(fabric, name + "link", way.rate, gate));
        s4u::Host* end = make_host(fabric, name)->seal();
        connect(fabric, end, route);
        way_ends_[{rank, peer, way.exit}] = end;
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
    bool held = false;            // waits for its begin, or for what stands still; `end` is then the time that is left
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
    displace_timed(activity);
    const bool alone = std::ranges::all_of(uses_of(activity), [this](ResourceId use) {
      return !resources_[use].shared && resources_[use].fluids == 0 && resources_[use].timed == none;
    });
    const std::size_t slot = keep(std::move(activity));
    if (any_gate(under_way_[slot], [](const Gate&) { return true; })) {
      hold(slot);
      return resume(slot);
    }
    if (!alone) return make_fluid(slot);
    for (const ResourceId use : uses_of(under_way_[slot])) resources_[use].timed = slot;
    alarms_.push({.date = under_way_[slot].end, .slot = slot});
  }

  // What had a resource of this one to itself no longer has, unless it ends now.
  void displace_timed(const Slot& activity) {
    const double clock = s4u::Engine::get_clock();
    for (const ResourceId use : uses_of(activity)) {
      const std::size_t other = resources_[use].timed;
      if (other != none && under_way_[other].end > clock) make_fluid(other);
    }
  }

  [[nodiscard]] bool passes(const Slot& activity, const Thing& thing) const {
    if (activity.from == activity.to) return thing.what == Disturbed::device && thing.rank == activity.from;
    if (thing.what == Disturbed::device) return false;
    if (thing.what == Disturbed::way) {
      return std::minmax(activity.from, activity.to) == std::minmax(thing.rank, thing.other);
    }
    const auto port = static_cast<PortId>(thing.other);
    const auto uses = [&](ResourceId wanted) {
      return std::ranges::find(uses_of(activity), wanted) != uses_of(activity).end();
    };
    if (thing.what != Disturbed::ports) return uses(ways_.out_of(port)) || uses(ways_.in_of(port));
    return (activity.from == thing.rank && uses(ways_.out_of(port))) ||
           (activity.to == thing.rank && uses(ways_.in_of(port)));
  }

  // Whether one of the gates that the activity goes through is like that.
  template <class Is>
  [[nodiscard]] bool any_gate(const Slot& activity, const Is& is) const {
    return std::ranges::any_of(gates_,
                               [&](const auto& each) { return is(each.second) && passes(activity, each.first); });
  }

  [[nodiscard]] bool needs_still(const Slot& activity) const {
    return any_gate(activity, [](const Gate& gate) { return gate.still; });
  }

  void hold_all_on_still() {
    for (std::size_t slot = 0; slot < under_way_.size(); ++slot) {
      if (under_way_[slot].fluid && needs_still(under_way_[slot])) hold(slot);
    }
  }

  // It leaves SimGrid, which then shares what it had among the others.
  void hold(std::size_t slot) {
    Slot& activity = under_way_[slot];
    double left = activity.end - activity.begin;
    if (activity.fluid) {
      left = activity.fluid->get_remaining();
      if (activity.from != activity.to) left /= parts_of_byte * activity.way.rate;
      for (const ResourceId use : uses_of(activity)) --resources_[use].fluids;
      activity.fluid->set_data(unheard());
      activity.fluid->cancel();
      cancelled_.push_back(std::move(activity.fluid));
      activity.fluid = nullptr;
    }
    activity.end = left;
    activity.held = true;
  }

  void resume_all() {
    for (std::size_t slot = 0; slot < under_way_.size(); ++slot) {
      if (under_way_[slot].held) resume(slot);
    }
  }

  // It waits for the end of its latency outside of SimGrid, so that it never has to leave it in the middle of that.
  void resume(std::size_t slot) {
    Slot& activity = under_way_[slot];
    const double clock = s4u::Engine::get_clock();
    if (activity.begin > clock) {
      if (delays_.contains(slot)) return;
      delays_[slot] = simgrid::kernel::timer::Timer::set(activity.begin, [this, slot] {
        delays_.erase(slot);  // SimGrid deletes it
        resume(slot);
      });
      return;
    }
    if (needs_still(activity)) return;
    activity.held = false;
    activity.begin = clock;
    activity.end += clock;
    displace_timed(activity);
    make_fluid(slot);
  }

  // The data of an activity that was cancelled.
  static void* unheard() { return reinterpret_cast<void*>(none); }

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
    latency_of_next_ = std::max(0.0, activity.begin - clock);
    const Exit exit = activity.way.exit;
    s4u::CommPtr comm =
        s4u::Comm::sendto_init(end_of(activity.from, activity.to, exit), end_of(activity.to, activity.from, exit));
    comm->set_payload_size(std::isinf(activity.way.rate) ? 0 : payload(left * activity.way.rate));
    launch(slot, *comm, comm);
  }

  [[nodiscard]] s4u::Host* end_of(int rank, int peer, Exit exit) const {
    const auto way = way_ends_.find({rank, peer, exit});
    if (way != way_ends_.end()) return way->second;
    return hosts_.at(static_cast<std::size_t>(exit))[static_cast<std::size_t>(rank)];
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
    if (slot == none) return;
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
    if (free_.size() == under_way_.size()) forget_changes();
    arm();
  }

  static inline Impl* current_ = nullptr;

  Platform platform_;
  Ways ways_;
  std::unique_ptr<s4u::Engine> engine_;
  std::vector<s4u::Host*> devices_;
  std::array<std::vector<s4u::Host*>, exits.size()> hosts_;  // by exit, then rank
  std::vector<s4u::Link*> links_;                            // by port
  std::vector<Resource> resources_;
  std::map<Thing, Gate> gates_;  // their addresses stay
  std::map<std::pair<int, PortId>, s4u::Link*> parts_of_ports_;
  std::map<std::tuple<int, int, Exit>, s4u::Host*> way_ends_;     // by rank and peer
  std::map<std::size_t, simgrid::kernel::timer::Timer*> delays_;  // by slot
  double begin_ = 0;
  double latency_of_next_ = 0;
  std::vector<Slot> under_way_;
  std::vector<std::size_t> free_;
  std::vector<s4u::ActivityPtr> retired_;
  std::vector<s4u::ActivityPtr> cancelled_;
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  simgrid::kernel::timer::Timer* timer_ = nullptr;
  std::vector<ActivityId> ids_;
  std::vector<ActivityId> delivered_;
  const Ended* ended_ = nullptr;
  std::exception_ptr error_;
  int failures_ = 0;
};

FluidEngine::FluidEngine(const Platform& platform, std::span<const Disturbance> disturbances) {
  require_valid(platform);
  require_valid(disturbances, platform);
  impl_ = std::make_unique<Impl>(platform, disturbances);
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
