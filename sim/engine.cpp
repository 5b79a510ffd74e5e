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
#include <map>
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
s4u::Host* make_host(s4u::NetZone* zone, const std::string& name, const std::vector<double>& speeds = {1.0}) {
  return zone->add_host(name, speeds);
}
s4u::SplitDuplexLink* make_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->add_split_duplex_link(name, bandwidth);
}
void connect(s4u::NetZone* star, s4u::Host* host, const std::vector<s4u::LinkInRoute>& ports) {
  star->add_route(host, nullptr, ports);
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
s4u::Host* make_host(s4u::NetZone* zone, const std::string& name, const std::vector<double>& speeds = {1.0}) {
  return zone->create_host(name, speeds);
}
s4u::SplitDuplexLink* make_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->create_split_duplex_link(name, bandwidth);
}
void connect(s4u::NetZone* star, s4u::Host* host, const std::vector<s4u::LinkInRoute>& ports) {
  star->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, ports);
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
  Impl(const Platform& platform, std::span<const Disturbance> disturbances)
      : platform_(platform),
        engine_(new_engine()),
        resources_(static_cast<std::size_t>(platform.ranks) * uses_of_rank) {
    make_gates(disturbances);
    s4u::NetZone* root = make_root(*engine_);
    const int machines = (platform.ranks + platform.ranks_per_machine - 1) / platform.ranks_per_machine;
    s4u::NetZone* fabric = make_star(root, "fabric");
    for (int machine = 0; machine < machines; ++machine) build_machine(root, fabric, machine);
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
  // What activities contend for: the device of each rank and both directions of its ports.
  enum class Use : std::uint8_t { device, inside_out, inside_in, outside_out, outside_in };
  static constexpr std::size_t uses_of_rank = 5;

  [[nodiscard]] static std::size_t resource(int rank, Use use) {
    return static_cast<std::size_t>(rank) * uses_of_rank + static_cast<std::size_t>(use);
  }

  // What changes its speed at dates: a resource, or a way beyond them. Everything on it is fluid from the start.
  struct Gate {
    std::vector<SpeedChange> changes;
    std::pair<int, int> ranks = {-1, -1};  // of a way, ascending
    std::size_t next = 0;                  // change
    simgrid::kernel::timer::Timer* timer = nullptr;
    double factor = 1;  // above zero: of what stands still that of before, since nothing is on it
    bool still = false;
    std::vector<s4u::Link*> links = {};
    s4u::Host* host = nullptr;
  };

  void make_gates(std::span<const Disturbance> disturbances) {
    std::map<std::size_t, std::vector<Disturbance>> by_thing;
    std::map<std::pair<int, int>, std::size_t> ways;
    for (const Disturbance& disturbance : disturbances) {
      const auto add = [&](Use use) { by_thing[resource(disturbance.rank, use)].push_back(disturbance); };
      if (disturbance.what == Disturbed::device) add(Use::device);
      if (disturbance.what == Disturbed::ports) {
        add(Use::inside_out);
        add(Use::inside_in);
      }
      if (disturbance.what == Disturbed::ports || disturbance.what == Disturbed::outside_ports) {
        add(Use::outside_out);
        add(Use::outside_in);
      }
      if (disturbance.what != Disturbed::way) continue;
      const std::pair<int, int> ranks = std::minmax(disturbance.rank, disturbance.peer);
      by_thing[ways.try_emplace(ranks, resources_.size() + ways.size()).first->second].push_back(disturbance);
    }
    for (const auto& [thing, all] : by_thing) gates_[thing].changes = speed_changes(all);
    for (const auto& [ranks, thing] : ways) {
      gates_[thing].ranks = ranks;
      const bool within = one_machine(platform_, ranks.first, ranks.second);
      for (const int rank : {ranks.first, ranks.second}) {
        resources_[resource(rank, within ? Use::inside_out : Use::outside_out)].shared = true;
        resources_[resource(rank, within ? Use::inside_in : Use::outside_in)].shared = true;
      }
    }
    for (const auto& [thing, gate] : gates_) {
      if (thing < resources_.size()) resources_[thing].shared = true;
    }
  }

  // One for each change of the device.
  [[nodiscard]] std::vector<double> speeds_of(std::size_t device) const {
    const auto gate = gates_.find(device);
    if (gate == gates_.end()) return {1.0};
    std::vector<double> speeds;
    for (const SpeedChange& change : gate->second.changes) speeds.push_back(change.factor > 0 ? change.factor : 1);
    return speeds;
  }

  // SimGrid 4.0 bounds a flow for life by its links' bandwidth at its start, so the bandwidth stays and what is shared
  // of it changes.
  static void guard(Gate& gate, s4u::Link* link) {
    link->set_sharing_policy(s4u::Link::SharingPolicy::NONLINEAR,
                             [&gate](double capacity, int) { return capacity * gate.factor; });
    gate.links.push_back(link);
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
      const std::vector<double> speeds = speeds_of(resource(rank, Use::device));
      s4u::Host* device = make_host(zone, "rank" + suffix, speeds)->seal();
      devices_.push_back(shared != nullptr ? shared : device);
      if (const auto gate = gates_.find(resource(rank, Use::device)); gate != gates_.end()) gate->second.host = device;
      resources_[resource(rank, Use::device)].shared |= shared != nullptr;
      inside_ports_.push_back(device);
      const auto inside = port(zone, "inside" + suffix, platform_.inside, rank, Use::inside_out);
      connect(zone, device, {inside});
      s4u::Host* nic = make_host(fabric, "nic" + suffix)->seal();
      outside_ports_.push_back(nic);
      const auto outside = port(fabric, "outside" + suffix, platform_.outside, rank, Use::outside_out);
      connect(fabric, nic, {outside});
      build_ways(rank, {zone, inside}, {fabric, outside});
    }
    zone->seal();
  }

  // A port's own star, and the port.
  struct Port {
    s4u::NetZone* star;
    s4u::LinkInRoute link;
  };

  // Messages of a disturbed way leave by a host of their own, through the same port; the lower rank's has the way.
  void build_ways(int rank, const Port& inside, const Port& outside) {
    for (auto& [thing, gate] : gates_) {
      if (gate.ranks.first != rank && gate.ranks.second != rank) continue;
      const bool lower = gate.ranks.first == rank;
      const int peer = lower ? gate.ranks.second : gate.ranks.first;
      const bool within = one_machine(platform_, rank, peer);
      const Port& port = within ? inside : outside;
      const std::string name = "way" + std::to_string(rank) + ">" + std::to_string(peer);
      s4u::Host* end = make_host(port.star, name)->seal();
      std::vector<s4u::LinkInRoute> links = {port.link};
      if (lower) {
        s4u::SplitDuplexLink* way =
            make_duplex(port.star, name + ".link", capacity(within ? platform_.inside : platform_.outside));
        guard(gate, way->get_link_up());
        guard(gate, way->get_link_down());
        way->seal();
        links.emplace_back(way, s4u::LinkInRoute::Direction::UP);
      }
      connect(port.star, end, links);
      way_ends_[{rank, peer}] = end;
    }
  }

  static double capacity(const TransferCost& cost) {
    const bool usable = std::isfinite(cost.bandwidth.value) && cost.bandwidth.value > 0;
    return usable ? cost.bandwidth.value * parts_of_byte : endless;
  }

  // `out`: what its direction away from the rank is; the other one stands behind it.
  s4u::LinkInRoute port(s4u::NetZone* zone, const std::string& name, const TransferCost& cost, int rank, Use out) {
    s4u::SplitDuplexLink* link = make_duplex(zone, name, capacity(cost));
    link->set_latency(unit_latency);
    const std::size_t thing = resource(rank, out);
    if (const auto gate = gates_.find(thing); gate != gates_.end()) guard(gate->second, link->get_link_up());
    if (const auto gate = gates_.find(thing + 1); gate != gates_.end()) guard(gate->second, link->get_link_down());
    link->seal();
    return {link, s4u::LinkInRoute::Direction::UP};
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
    if (any_gate(under_way_[slot], [](const Gate&) { return true; })) {
      hold(slot);
      return resume(slot);
    }
    if (!alone) return make_fluid(slot);
    for (const std::size_t use : uses) resources_[use].timed = slot;
    alarms_.push({.date = under_way_[slot].end, .slot = slot});
  }

  // Whether one of the gates that the activity goes through is like that.
  template <class Is>
  [[nodiscard]] bool any_gate(const Slot& activity, const Is& is) const {
    const std::pair<int, int> ranks = std::minmax(activity.from, activity.to);
    return std::ranges::any_of(gates_, [&](const auto& thing) {
      const auto& [number, gate] = thing;
      const bool passes = number == activity.uses[0] || number == activity.uses[1] ||
                          (activity.from != activity.to && gate.ranks == ranks);
      return passes && is(gate);
    });
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
      if (activity.from != activity.to) {
        left /= parts_of_byte * port_between(platform_, activity.from, activity.to).bandwidth.value;
      }
      for (const std::size_t use : activity.uses) --resources_[use].fluids;
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
    make_fluid(slot);
  }

  // The data of an activity that was cancelled.
  static void* unheard() { return reinterpret_cast<void*>(none); }

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
    const auto end_of = [&](int rank, int other) {
      const auto way = way_ends_.find({rank, other});
      return way != way_ends_.end() ? way->second : ports[static_cast<std::size_t>(rank)];
    };
    s4u::CommPtr comm = s4u::Comm::sendto_init(end_of(activity.from, activity.to), end_of(activity.to, activity.from));
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
    if (free_.size() == under_way_.size()) forget_changes();
    arm();
  }

  static inline Impl* current_ = nullptr;

  Platform platform_;
  std::unique_ptr<s4u::Engine> engine_;
  std::vector<s4u::Host*> devices_;
  std::vector<s4u::Host*> inside_ports_;
  std::vector<s4u::Host*> outside_ports_;
  std::vector<Resource> resources_;
  std::map<std::size_t, Gate> gates_;  // by resource, ways behind them; their addresses stay
  std::map<std::pair<int, int>, s4u::Host*> way_ends_;
  std::map<std::size_t, simgrid::kernel::timer::Timer*> delays_;  // by slot
  std::vector<s4u::ActivityPtr> cancelled_;
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

FluidEngine::FluidEngine(const Platform& platform, std::span<const Disturbance> disturbances) {
  require_valid(platform);
  require_valid(disturbances, platform);
  impl_ = std::make_unique<Impl>(platform, disturbances);
}
FluidEngine::~FluidEngine() = default;

void FluidEngine::compute(ActivityId id, int rank, Seconds alone) { impl_->compute(id, rank, alone); }
void FluidEngine::transfer(ActivityId id, int from, int to, Bytes bytes, Seconds latency) {
  impl_->transfer(id, from, to, bytes, latency);
}
Seconds FluidEngine::now() const { return impl_->now(); }
void FluidEngine::run(const Ended& ended) { impl_->run(ended); }

}  // namespace plumb::sim
