#include <algorithm>
#include <functional>
#include <set>

#include "common/graph/memory.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

// +1 when a microbatch's activations come to life on a stage, −1 when the last of them is freed, else 0.
int change(const ActionIndex& index, const Action& action) {
  switch (action.kind) {
    case ActionKind::forward:
      return index.find(ActionKind::recompute, action.stage, action.microbatch) == nowhere ? 1 : 0;
    case ActionKind::recompute:
      return 1;
    case ActionKind::backward:
    case ActionKind::weight_gradient:
      return -1;
    default:
      return 0;
  }
}

// Calls at_change(rank, action, ±1 or 0) for every compute action and half of an eviction, rank by rank in the order of
// its list.
template <class AtChange>
void walk(const Schedule& schedule, const AtChange& at_change) {
  require_well_formed(schedule);
  const ActionIndex index = index_actions(schedule);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      if (!in_range(schedule, action)) continue;
      if (is_compute(action.kind)) at_change(rank, action, change(index, action));
      if (!is_eviction(action.kind)) continue;
      const bool own = rank_of(schedule, action.stage, action.microbatch) == static_cast<int>(rank);
      at_change(rank, action, own == (action.kind == ActionKind::evict) ? -1 : 1);
    }
  }
}

using Held = std::vector<int>;  // microbatches per stage of one rank

// Those that no other one exceeds.
std::vector<Held> maximal(const std::vector<Held>& peaks) {
  std::vector<Held> found;
  const auto exceeded_by = [](const Held& peak) {
    return [&peak](const Held& other) {
      return other != peak && std::equal(peak.begin(), peak.end(), other.begin(), std::less_equal<>());
    };
  };
  for (const Held& peak : peaks) {
    if (std::ranges::none_of(peaks, exceeded_by(peak))) found.push_back(peak);
  }
  return found;
}

}  // namespace

std::vector<double> peak_activations(const Schedule& schedule) {
  std::vector<int> held(schedule.actions.size(), 0);
  std::vector<int> most(schedule.actions.size(), 0);
  walk(schedule, [&](std::size_t rank, const Action&, int by) {
    held[rank] += by;
    most[rank] = std::max(most[rank], held[rank]);
  });
  std::vector<double> shares;
  shares.reserve(most.size());
  for (std::size_t rank = 0; rank < most.size(); ++rank) {
    const int parts = chunks_of_rank(schedule, static_cast<int>(rank)) * schedule.slices;
    shares.push_back(static_cast<double>(most[rank]) / parts);
  }
  return shares;
}

std::vector<std::vector<std::vector<int>>> fullest_moments(const Schedule& schedule) {
  require_well_formed(schedule);
  // Of a stage among those of a rank, by rank and stage.
  std::vector<std::vector<std::size_t>> place(schedule.actions.size());
  std::vector<Held> held(schedule.actions.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    place[rank].resize(schedule.rank_of_stage.size());
    for (const int stage : stages_of_rank(schedule, static_cast<int>(rank))) {
      place[rank][static_cast<std::size_t>(stage)] = held[rank].size();
      held[rank].push_back(0);
    }
  }
  std::vector<std::vector<Held>> peaks(held.size());  // of each rank, in the order of time, each once
  std::vector<std::set<Held>> seen(held.size());
  std::vector<char> grew(held.size(), 0);
  const auto add_peak = [&](std::size_t rank) {
    if (grew[rank] != 0 && seen[rank].insert(held[rank]).second) peaks[rank].push_back(held[rank]);
    grew[rank] = 0;
  };
  walk(schedule, [&](std::size_t rank, const Action& action, int by) {
    if (!holds(schedule, static_cast<int>(rank), action.stage)) return;
    int& own = held[rank][place[rank][static_cast<std::size_t>(action.stage)]];
    if (by < 0) add_peak(rank);
    own += by;
    if (by > 0) grew[rank] = 1;
    if (by != 0 || action.kind != ActionKind::forward) return;
    // F that is redone holds as much, while it runs.
    ++own;
    grew[rank] = 1;
    add_peak(rank);
    --own;
  });
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    add_peak(rank);
    if (peaks[rank].empty() && !held[rank].empty()) peaks[rank].push_back(held[rank]);
    peaks[rank] = maximal(peaks[rank]);
  }
  return peaks;
}

}  // namespace plumb
