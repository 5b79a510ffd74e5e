#include <algorithm>
#include <functional>
#include <set>

#include "common/base/stop.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/held_activations.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

// Calls at_change(rank, action, ±1 or 0) for every compute action and half of an eviction, rank by rank in the order of
// its list.
template <class AtChange>
void walk(const Schedule& schedule, const AtChange& at_change) {
  require_well_formed(schedule);
  const ActionIndex index = index_actions(schedule);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      look_at_stop();
      if (!in_range(schedule, action)) continue;
      if (!is_compute(action.kind) && !is_eviction(action.kind)) continue;
      at_change(rank, action, activation_change(schedule, index, static_cast<int>(rank), action));
    }
  }
}

using Held = std::vector<int>;  // microbatches per stage of one rank

// Of each stage its place among those of its rank; of two replicas, on each one's rank.
class StagePlaces {
 public:
  // Makes room in `held` of each rank.
  StagePlaces(const Schedule& schedule, std::vector<Held>& held)
      : schedule_(schedule), places_(static_cast<std::size_t>(replicas(schedule))) {
    for (int stage = 0; stage < stages(schedule); ++stage) {
      for (int replica = 0; replica < replicas(schedule); ++replica) {
        const int rank = rank_in_replica(schedule, replica, stage);
        Held& of_rank = held[static_cast<std::size_t>(rank)];
        const bool again = replica > 0 && rank == rank_in_replica(schedule, 0, stage);
        if (!again) of_rank.push_back(0);
        places_[static_cast<std::size_t>(replica)].push_back(of_rank.size() - 1);
      }
    }
  }

  [[nodiscard]] std::size_t of(int rank, int stage) const {
    const bool first = rank == rank_in_replica(schedule_, 0, stage);
    return (first ? places_.front() : places_.back())[static_cast<std::size_t>(stage)];
  }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<std::size_t>> places_;  // by replica and stage
};

// Those that no other one exceeds.
std::vector<Held> maximal(const std::vector<Held>& peaks) {
  std::vector<Held> found;
  const auto exceeded_by = [](const Held& peak) {
    return [&peak](const Held& other) {
      look_at_stop();
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
  std::vector<Held> held(schedule.actions.size());
  const StagePlaces place(schedule, held);
  std::vector<std::vector<Held>> peaks(held.size());  // of each rank, in the order of time, each once
  std::vector<std::set<Held>> seen(held.size());
  std::vector<char> grew(held.size(), 0);
  const auto add_peak = [&](std::size_t rank) {
    if (grew[rank] != 0 && seen[rank].insert(held[rank]).second) peaks[rank].push_back(held[rank]);
    grew[rank] = 0;
  };
  walk(schedule, [&](std::size_t rank, const Action& action, int by) {
    if (!holds(schedule, static_cast<int>(rank), action.stage) || is_part(schedule, action.stage)) return;
    int& own = held[rank][place.of(static_cast<int>(rank), action.stage)];
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

std::vector<std::vector<std::vector<int>>> fullest_moments_until_input(const Schedule& schedule) {
  Schedule freed = schedule;
  for (auto& list : freed.actions) {
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::weight_gradient; });
    for (Action& action : list) {
      if (action.kind == ActionKind::input_gradient) action.kind = ActionKind::backward;
    }
  }
  freed.overlapped.clear();
  return fullest_moments(freed);
}

}  // namespace plumb
