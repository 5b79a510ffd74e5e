#include "sim/engine.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/cluster/machine.hpp"
#include "sim/fabric.hpp"
#include "sim/gates.hpp"
#include "sim/paths.hpp"
#include "sim/simgrid_engine.hpp"
#include "sim/simgrid_versions.hpp"
#include "sim/slots.hpp"

namespace plumb::sim {
namespace {

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
        paths_(platform_),
        gates_(gates_of(disturbances, paths_)),
        engine_(new_engine()),
        root_(make_root(*engine_)),
        star_(make_star(root_, "fabric")),
        fabric_(star_, platform_, paths_, gates_),
        resources_(paths_.resource_count()) {
    for (int rank = 0; rank < platform.ranks; ++rank) {
      resources_[Paths::device(rank)].shared = shares_cores(platform, machine_of(rank, platform.ranks_per_machine));
    }
    star_->seal();
    set_latency_factor(root_, [this](double, const s4u::Host*, const s4u::Host*, const std::vector<s4u::Link*>&,
                                     const std::unordered_set<s4u::NetZone*>&) { return latency_of_next_; });
    root_->seal();
    begin_ = s4u::Engine::get_clock();
    for (auto& [gated, gate] : gates_) open(gate);
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
    if (!under_way_.all_free()) engine_->run();
    retired_.clear();
    cancelled_.clear();
    under_way_ = {};
    current_ = nullptr;
    engine_.reset();
  }

  void compute(ActivityId id, int rank, Seconds alone) {
    const double clock = s4u::Engine::get_clock();
    Slot slot{.id = id, .from = rank, .to = rank, .begin = clock, .end = clock + alone.value};
    slot.path.count = 1;
    slot.path.uses[0] = Paths::device(rank);
    start(std::move(slot));
  }

  void pass(ActivityId id, Seconds time) {
    const double clock = s4u::Engine::get_clock();
    start({.id = id, .from = -1, .to = -1, .begin = clock, .end = clock + time.value});
  }

  void flow(ActivityId id, int from, int to, double bytes, Seconds latency, bool collective) {
    const double begin = s4u::Engine::get_clock() + latency.value;
    const Path path = paths_.between(from, to, collective);
    start({.id = id, .from = from, .to = to, .path = path, .begin = begin, .end = begin + bytes / path.rate});
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
    for (auto& [gated, gate] : gates_) {
      if (gate.timer != nullptr) std::exchange(gate.timer, nullptr)->remove();
    }
    for (auto& [slot, timer] : delays_) timer->remove();
    delays_.clear();
  }

  // When a timed activity ends; out of date if its slot has another end.
  struct Alarm {
    double date = 0;
    std::size_t slot = 0;
    bool operator>(const Alarm& other) const { return date > other.date; }
  };

  void start(Slot activity) {
    displace_timed(activity);
    const bool alone = std::ranges::all_of(uses_of(activity.path), [this](ResourceId use) {
      return !resources_[use].shared && resources_[use].fluids == 0 && resources_[use].timed == no_slot;
    });
    const std::size_t slot = under_way_.keep(std::move(activity));
    if (any_gate(under_way_[slot], [](const Gate&) { return true; })) {
      hold(slot);
      return resume(slot);
    }
    if (!alone) return make_fluid(slot);
    for (const ResourceId use : uses_of(under_way_[slot].path)) resources_[use].timed = slot;
    alarms_.push({.date = under_way_[slot].end, .slot = slot});
  }

  // What had a resource of this one to itself no longer has, unless it ends now.
  void displace_timed(const Slot& activity) {
    const double clock = s4u::Engine::get_clock();
    for (const ResourceId use : uses_of(activity.path)) {
      const std::size_t other = resources_[use].timed;
      if (other != no_slot && under_way_[other].end > clock) make_fluid(other);
    }
  }

  // Whether one of the gates that the activity goes through is like that.
  template <class Is>
  [[nodiscard]] bool any_gate(const Slot& activity, const Is& is) const {
    return std::ranges::any_of(gates_, [&](const auto& each) {
      return is(each.second) && passes(each.first, activity.from, activity.to, activity.path, paths_);
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
      if (activity.from != activity.to) left /= parts_of_byte * activity.path.rate;
      for (const ResourceId use : uses_of(activity.path)) --resources_[use].fluids;
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
  static void* unheard() { return reinterpret_cast<void*>(no_slot); }

  // What is left of it goes on in SimGrid.
  void make_fluid(std::size_t slot) {
    const Slot& activity = under_way_[slot];
    for (const ResourceId use : uses_of(activity.path)) {
      if (resources_[use].timed == slot) resources_[use].timed = no_slot;
      ++resources_[use].fluids;
    }
    const double clock = s4u::Engine::get_clock();
    const double left = activity.end - std::max(clock, activity.begin);
    if (activity.from == activity.to) {
      s4u::ExecPtr exec = s4u::Exec::init();
      exec->set_flops_amount(left)->set_host(fabric_.device(activity.from));
      // Each thread has `left` to do.
      const bool shared = resources_[Paths::device(activity.from)].shared;
      if (shared && platform_.cores_per_rank > 1) exec->set_thread_count(platform_.cores_per_rank);
      launch(slot, *exec, exec);
      return;
    }
    latency_of_next_ = std::max(0.0, activity.begin - clock);
    const Exit exit = activity.path.exit;
    s4u::CommPtr comm = s4u::Comm::sendto_init(fabric_.end_of(activity.from, activity.to, exit),
                                               fabric_.end_of(activity.to, activity.from, exit));
    comm->set_payload_size(std::isinf(activity.path.rate) ? 0 : payload(left * activity.path.rate));
    launch(slot, *comm, comm);
  }

  template <class Fluid>
  void launch(std::size_t slot, Fluid& fluid, s4u::ActivityPtr held) {
    fluid.set_data(reinterpret_cast<void*>(slot));
    under_way_[slot].fluid = std::move(held);
    begin(fluid);
  }

  // It has ended.
  void let_go(std::size_t slot) {
    Slot& activity = under_way_[slot];
    for (const ResourceId use : uses_of(activity.path)) {
      if (activity.fluid) --resources_[use].fluids;
      if (!activity.fluid) resources_[use].timed = no_slot;
    }
    ids_.push_back(activity.id);
    if (activity.fluid) retired_.push_back(std::move(activity.fluid));
    under_way_.set_free(slot);
  }

  // Called by SimGrid in its own order. An exception must not pass through SimGrid, and an activity must outlive this
  // call, so both are kept for later. The timer fires at the same moment, when all that ends then has ended.
  void completed(const s4u::Activity& activity) {
    const auto slot = reinterpret_cast<std::size_t>(activity.get_data<void>());
    if (slot == no_slot) return;
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
    const bool timed = activity.path.count == 0 || resources_[activity.path.uses[0]].timed == alarm.slot;
    return timed && activity.end == alarm.date;
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
    if (under_way_.all_free()) forget_changes();
    arm();
  }

  static inline Impl* current_ = nullptr;

  Platform platform_;
  Paths paths_;
  Gates gates_;
  std::unique_ptr<s4u::Engine> engine_;
  s4u::NetZone* root_;
  s4u::NetZone* star_;
  Fabric fabric_;
  std::vector<Resource> resources_;
  std::map<std::size_t, simgrid::kernel::timer::Timer*> delays_;  // by slot
  double begin_ = 0;
  double latency_of_next_ = 0;
  Slots under_way_;
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
void FluidEngine::pass(ActivityId id, Seconds time) { impl_->pass(id, time); }
void FluidEngine::transfer(ActivityId id, int from, int to, Bytes bytes, Seconds latency) {
  impl_->flow(id, from, to, static_cast<double>(bytes.value), latency, false);
}
void FluidEngine::flow(ActivityId id, int from, int to, double bytes, Seconds latency) {
  impl_->flow(id, from, to, bytes, latency, true);
}
Seconds FluidEngine::now() const { return impl_->now(); }
void FluidEngine::run(const Ended& ended) { impl_->run(ended); }

}  // namespace plumb::sim
