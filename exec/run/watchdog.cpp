#include "exec/run/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/layout/lane.hpp"
#include "common/schedule/reductions.hpp"
#include "exec/host/pauses.hpp"
#include "exec/run/step_name.hpp"
#include "exec/run/vocabulary/exchange_order.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {
namespace {

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

// Both of the pipeline.
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

// Where all ranks of a layout stand, each in the list of its pipeline rank.
class Standing {
 public:
  Standing(const Schedule& lowered, const Layout& layout, const std::vector<Position>& positions, int warm_up)
      : lowered_(lowered), layout_(layout), positions_(positions), warm_up_(warm_up) {
    for (int rank = 0; rank < ranks(layout); ++rank) lanes_.push_back(lane_of(layout, rank));
  }

  [[nodiscard]] int count() const { return static_cast<int>(lanes_.size()); }

  [[nodiscard]] std::string where(int rank) const {
    return describe(of(rank), lowered_, pipeline_rank(rank), warm_up_);
  }

  [[nodiscard]] std::optional<Awaited> awaited(int rank) const {
    const std::optional<Action> action = action_at(lowered_, pipeline_rank(rank), of(rank));
    if (!action) return std::nullopt;
    if (const auto giver = awaited_giver(rank, *action)) return giver;
    if (is_of_data_ranks(lowered_, *action)) return awaited_in_group(rank, *action, MeshAxis::data);
    if (is_compute(action->kind)) return awaited_inside(rank, *action);
    std::optional<Awaited> found = awaited_by(lowered_, pipeline_rank(rank), *action);
    if (found) found->rank = lanes_[static_cast<std::size_t>(rank)].ranks.at(static_cast<std::size_t>(found->rank));
    return found;
  }

  // Whether the awaited action is behind its rank: what is missing then is only on its way.
  [[nodiscard]] bool is_done(int rank, const Awaited& awaited) const {
    const std::optional<std::int64_t> place = place_of(awaited);
    if (!place) return false;
    const Position& there = of(awaited.rank);
    const int step = of(rank).step;
    return there.step > step || (there.step == step && there.action > *place);
  }

  [[nodiscard]] std::string describe_wait(int rank, const Awaited& awaited) const {
    const std::optional<std::int64_t> place = place_of(awaited);
    const std::string whose = fmt::format("waits for rank {}'s {}", awaited.rank, to_string(awaited.action));
    if (!place) return whose + ", which is not in its schedule";
    const Position& there = of(awaited.rank);
    if (is_done(rank, awaited)) return whose + ", which is done there";
    if (there.step < of(rank).step) return whose + ", which is in an earlier step";
    const auto before = *place - std::max<std::int64_t>(there.action, 0);
    return before == 0 ? whose + ", which it is at" : fmt::format("{}, {} actions later there", whose, before);
  }

 private:
  [[nodiscard]] const Position& of(int rank) const { return positions_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int pipeline_rank(int rank) const { return lanes_[static_cast<std::size_t>(rank)].pipeline_rank; }

  [[nodiscard]] std::optional<std::int64_t> place_of(const Awaited& awaited) const {
    const auto& theirs = actions_of(lowered_, pipeline_rank(awaited.rank));
    const auto found = std::find(theirs.begin(), theirs.end(), awaited.action);
    return found == theirs.end() ? std::nullopt : std::optional<std::int64_t>(found - theirs.begin());
  }

  // Of an action that waits for what the parts of a vocabulary exchange: the first that has not given its own.
  [[nodiscard]] std::optional<Awaited> awaited_giver(int rank, const Action& action) const {
    const Lane& lane = lanes_[static_cast<std::size_t>(rank)];
    for (const Giver& giver : givers_before(lowered_, lane.pipeline_rank, action)) {
      const Awaited awaited{lane.ranks.at(static_cast<std::size_t>(giver.rank)), giver.action};
      if (!is_done(rank, awaited)) return awaited;
    }
    return std::nullopt;
  }

  // Of an action in which ranks make collectives.
  [[nodiscard]] std::optional<Awaited> awaited_inside(int rank, const Action& action) const {
    std::optional<Awaited> found = awaited_in_group(rank, action, MeshAxis::tensor);
    const bool moves_weights = gathers_in_actions(layout_) || reduces_in_actions(layout_);
    if (!found && moves_weights) found = awaited_in_group(rank, action, MeshAxis::data);
    return found;
  }

  // Of a collective of the ranks on an axis: the first that has not come to its action.
  [[nodiscard]] std::optional<Awaited> awaited_in_group(int rank, const Action& action, MeshAxis axis) const {
    for (const int other : group(layout_, rank, axis)) {
      const Position& there = of(other);
      const bool has_come =
          there.step > of(rank).step || (there.step == of(rank).step && there.action >= of(rank).action);
      if (!has_come) return Awaited{other, action};
    }
    return std::nullopt;
  }

  const Schedule& lowered_;
  const Layout& layout_;
  const std::vector<Position>& positions_;
  int warm_up_;
  std::vector<Lane> lanes_;  // by rank
};

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

std::string describe(const Position& position, const Schedule& lowered, int rank, int warm_up) {
  const std::string step = step_name(position.step, warm_up);
  if (position.action == Position::before) return "before " + step;
  const std::optional<Action> action = action_at(lowered, rank, position);
  return action ? fmt::format("{}, {}", step, to_string(*action)) : "after " + step;
}

std::string describe_waits(const Schedule& lowered, const Layout& layout, const std::vector<Position>& positions,
                           int warm_up) {
  const Standing standing(lowered, layout, positions, warm_up);
  std::string text;
  std::vector<std::optional<Awaited>> waits;
  for (int rank = 0; rank < standing.count(); ++rank) {
    waits.push_back(standing.awaited(rank));
    text += fmt::format("  rank {}: {}", rank, standing.where(rank));
    if (waits.back()) text += " " + standing.describe_wait(rank, *waits.back());
    text += '\n';
    if (waits.back() && standing.is_done(rank, *waits.back())) waits.back().reset();
  }
  for (int rank = 0; rank < standing.count(); ++rank) {
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
  const PauseWatch pauses;
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, PauseCount::look_every, [this] { return stop_; })) {
    pauses.look();
    const Clock::time_point now = unpaused_now();
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
