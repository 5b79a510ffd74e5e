#include "exec/run/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/schedule/reductions.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 50ms;

std::int64_t pack(const Position& position) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(position.step)) << 32U) |
                                   static_cast<std::uint32_t>(position.action));
}

Position unpack(std::int64_t packed) {
  const auto bits = static_cast<std::uint64_t>(packed);
  return {.step = static_cast<std::int32_t>(bits >> 32U), .action = static_cast<std::int32_t>(bits & 0xffffffffU)};
}

const std::vector<Action>& actions_of(const Schedule& schedule, int rank) {
  return schedule.actions[static_cast<std::size_t>(rank)];
}

std::optional<Action> action_at(const Schedule& lowered, int rank, const Position& position) {
  const auto& actions = actions_of(lowered, rank);
  if (position.action < 0 || static_cast<std::size_t>(position.action) >= actions.size()) return std::nullopt;
  return actions[static_cast<std::size_t>(position.action)];
}

// Whom an action waits for, and the action there that lets it go on.
struct Awaited {
  int rank = 0;
  Action action;
};

std::optional<Awaited> awaited_by(const Schedule& lowered, int rank, const Action& action) {
  const int last = stages(lowered) - 1;
  if (is_receive(action.kind)) {
    const Action send = other_end(action);
    if (send.stage >= 0 && send.stage <= last) return Awaited{rank_of(lowered, send.stage, send.microbatch), send};
  }
  if (is_eviction(action.kind)) {
    if (sends_activations(lowered, rank, action)) return std::nullopt;
    for (int other = 0; other < lowered.ranks; ++other) {
      const auto& theirs = actions_of(lowered, other);
      if (other != rank && std::find(theirs.begin(), theirs.end(), action) != theirs.end())
        return Awaited{other, action};
    }
  }
  if (action.kind == ActionKind::reduce_tied) {
    const Action theirs = other_half(action, stages(lowered));
    return Awaited{rank_in_replica(lowered, 0, theirs.stage), theirs};
  }
  if (is_sum_of_replicas(lowered, action)) {
    const int first = rank_in_replica(lowered, 0, action.stage);
    return Awaited{rank == first ? rank_in_replica(lowered, 1, action.stage) : first, action};
  }
  return std::nullopt;
}

// Whether the awaited action is behind its rank: what is missing then is only on its way.
bool is_done(const Schedule& lowered, const std::vector<Position>& positions, int rank, const Awaited& awaited) {
  const auto& theirs = actions_of(lowered, awaited.rank);
  const auto found = std::find(theirs.begin(), theirs.end(), awaited.action);
  if (found == theirs.end()) return false;
  const Position& there = positions[static_cast<std::size_t>(awaited.rank)];
  const int step = positions[static_cast<std::size_t>(rank)].step;
  return there.step > step || (there.step == step && there.action > found - theirs.begin());
}

std::string describe_wait(const Schedule& lowered, const std::vector<Position>& positions, int rank,
                          const Awaited& awaited) {
  const auto& theirs = actions_of(lowered, awaited.rank);
  const auto found = std::find(theirs.begin(), theirs.end(), awaited.action);
  const std::string whose = fmt::format("waits for rank {}'s {}", awaited.rank, to_string(awaited.action));
  if (found == theirs.end()) return whose + ", which is not in its schedule";
  const Position& there = positions[static_cast<std::size_t>(awaited.rank)];
  const auto index = found - theirs.begin();
  const int step = positions[static_cast<std::size_t>(rank)].step;
  if (is_done(lowered, positions, rank, awaited)) return whose + ", which is done there";
  if (there.step < step) return whose + ", which is in an earlier step";
  const auto before = index - std::max<std::int64_t>(there.action, 0);
  return before == 0 ? whose + ", which it is at" : fmt::format("{}, {} actions later there", whose, before);
}

// Follows the waits from `rank`; the ranks of the cycle that it leads into, or none.
std::vector<int> cycle_from(int rank, const std::vector<std::optional<Awaited>>& waits) {
  std::vector<int> path;
  while (waits[static_cast<std::size_t>(rank)]) {
    const auto seen = std::find(path.begin(), path.end(), rank);
    if (seen != path.end()) return {seen, path.end()};
    path.push_back(rank);
    rank = waits[static_cast<std::size_t>(rank)]->rank;
  }
  return {};
}

}  // namespace

std::string describe(const Position& position, const Schedule& lowered, int rank) {
  if (position.action == Position::before) return fmt::format("before step {}", position.step);
  const std::optional<Action> action = action_at(lowered, rank, position);
  return action ? fmt::format("step {}, {}", position.step, to_string(*action))
                : fmt::format("after step {}", position.step);
}

std::string describe_waits(const Schedule& lowered, const std::vector<Position>& positions) {
  std::string text;
  std::vector<std::optional<Awaited>> waits;
  for (int rank = 0; rank < lowered.ranks; ++rank) {
    const Position& position = positions[static_cast<std::size_t>(rank)];
    const std::optional<Action> action = action_at(lowered, rank, position);
    waits.push_back(action ? awaited_by(lowered, rank, *action) : std::nullopt);
    text += fmt::format("  rank {}: {}", rank, describe(position, lowered, rank));
    if (waits.back()) text += " " + describe_wait(lowered, positions, rank, *waits.back());
    text += '\n';
    if (waits.back() && is_done(lowered, positions, rank, *waits.back())) waits.back().reset();
  }
  for (int rank = 0; rank < lowered.ranks; ++rank) {
    const std::vector<int> cycle = cycle_from(rank, waits);
    if (cycle.empty()) continue;
    text += "  a cycle of waits: rank ";
    for (const int member : cycle) text += fmt::format("{} -> ", member);
    return text + fmt::format("{}\n", cycle.front());
  }
  return text;
}

Watchdog::Watchdog(int ranks, Actions actions)
    : slots_(static_cast<std::size_t>(ranks)), on_(std::move(actions)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
}

void Watchdog::enter(int rank, const Position& position, Clock::time_point now, Clock::time_point deadline) {
  Slot& slot = slots_[static_cast<std::size_t>(rank)];
  // In this order a reader may pair a new deadline with the old position, but never an old deadline with a new one.
  slot.deadline.store(deadline.time_since_epoch().count(), std::memory_order_release);
  slot.entered.store(now.time_since_epoch().count(), std::memory_order_release);
  slot.position.store(pack(position), std::memory_order_release);
}

Position Watchdog::position(int rank) const {
  return unpack(slots_[static_cast<std::size_t>(rank)].position.load(std::memory_order_acquire));
}

std::vector<Position> Watchdog::positions() const {
  std::vector<Position> all;
  for (std::size_t rank = 0; rank < slots_.size(); ++rank) all.push_back(position(static_cast<int>(rank)));
  return all;
}

void Watchdog::watch() {
  std::vector<Clock::rep> reported(slots_.size(), INT64_MAX);
  Clock::time_point give_up = Clock::time_point::max();
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, look_every, [this] { return stop_; })) {
    const Clock::time_point now = Clock::now();
    for (std::size_t rank = 0; rank < slots_.size(); ++rank) {
      const Clock::rep deadline = slots_[rank].deadline.load(std::memory_order_acquire);
      if (now.time_since_epoch().count() < deadline || reported[rank] == deadline) continue;
      reported[rank] = deadline;
      give_up = std::min(
          give_up, now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(on_.grace.value)));
      const Clock::duration entered(slots_[rank].entered.load(std::memory_order_acquire));
      const int hanging = static_cast<int>(rank);
      const std::chrono::duration<double> since = now.time_since_epoch() - entered;
      on_.on_hang(hanging, position(hanging), {since.count()});
    }
    if (now < give_up) continue;
    give_up = Clock::time_point::max();
    on_.on_stuck();
  }
}

}  // namespace plumb::exec
