#include "common/schedule/schedule.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/capability/capability.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {

std::vector<int> loop_placement(int ranks, int chunks) {
  std::vector<int> rank_of_stage;
  rank_of_stage.reserve(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int rank = 0; rank < ranks; ++rank) rank_of_stage.push_back(rank);
  }
  return rank_of_stage;
}

std::vector<int> wave_placement(int ranks, int chunks) {
  std::vector<int> rank_of_stage;
  rank_of_stage.reserve(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int i = 0; i < ranks; ++i) rank_of_stage.push_back(chunk % 2 == 0 ? i : ranks - 1 - i);
  }
  return rank_of_stage;
}

bool has_action(const Schedule& schedule, ActionKind kind) {
  return std::ranges::any_of(schedule.actions, [&](const auto& list) {
    return std::ranges::any_of(list, [&](const Action& action) { return action.kind == kind; });
  });
}

bool evicts(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& list) {
    return std::ranges::any_of(list, [](const Action& action) { return is_eviction(action.kind); });
  });
}

std::vector<int> stages_of_rank(const Schedule& schedule, int rank) {
  std::vector<int> held;
  for (int stage = 0; stage < all_stages(schedule); ++stage) {
    if (holds(schedule, rank, stage)) held.push_back(stage);
  }
  return held;
}

Action clip_of(const Schedule& schedule, int rank) {
  int stage = 0;
  while (stage + 1 < stages(schedule) && !holds(schedule, rank, stage)) ++stage;
  return {ActionKind::clip_gradients, stage, no_microbatch};
}

int chunks_of_rank(const Schedule& schedule, int rank) {
  const auto end = schedule.rank_of_stage.begin() + stages(schedule);
  return std::max<int>(1, static_cast<int>(std::count(schedule.rank_of_stage.begin(), end, rank)));
}

int most_chunks_of_rank(const Schedule& schedule) {
  std::vector<int> held(static_cast<std::size_t>(schedule.ranks), 0);
  for (int stage = 0; stage < stages(schedule); ++stage) {
    ++held[static_cast<std::size_t>(rank_in_replica(schedule, 0, stage))];
  }
  return std::max(1, *std::ranges::max_element(held));
}

bool ends_on_two_ranks(const Schedule& schedule) {
  const int last = stages(schedule) - 1;
  return rank_in_replica(schedule, 0, 0) != rank_in_replica(schedule, 0, last) && replicas(schedule) == 1;
}

Schedule with_recompute(Schedule schedule, const std::vector<bool>& recomputed) {
  require_well_formed(schedule);
  if (recomputed.size() != schedule.rank_of_stage.size()) {
    throw InputError("schedule", std::to_string(schedule.rank_of_stage.size()) +
                                     " stages, but recompute is given for " + std::to_string(recomputed.size()));
  }
  if (std::ranges::none_of(recomputed, [](bool stage) { return stage; })) return schedule;
  const ActionIndex index = index_actions(schedule);
  if (evicts(schedule) || schedule.slices > 1) {
    UsedFeatures used{.set = FeatureSet().set(index_of(Feature::recompute_by_stage)), .schedule = schedule.name};
    used.set.set(index_of(Feature::slices), schedule.slices > 1);
    used.set.set(index_of(Feature::evictions), evicts(schedule));
    require_none(refusals(used, Purpose::plan));
  }
  const std::vector<bool> begins_pair = pair_begins(schedule, index);
  const auto needs = [&](const Action& action) {
    const bool gradient = makes_input_gradient(action.kind);
    return gradient && in_range(schedule, action) && recomputed[static_cast<std::size_t>(action.stage)] &&
           index.find(ActionKind::recompute, action.stage, action.microbatch) == nowhere;
  };
  std::size_t position = 0;
  for (auto& list : schedule.actions) {
    std::vector<Action> with;
    with.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i, ++position) {
      const bool second = position > 0 && begins_pair[position - 1];
      if (!second && needs(list[i])) with.push_back({ActionKind::recompute, list[i].stage, list[i].microbatch});
      if (begins_pair[position] && needs(list[i + 1])) {
        with.push_back({ActionKind::recompute, list[i + 1].stage, list[i + 1].microbatch});
      }
      with.push_back(list[i]);
    }
    list = std::move(with);
  }
  return schedule;
}

Schedule with_recompute(Schedule schedule) {
  std::vector<bool> all(schedule.rank_of_stage.size(), false);
  std::fill_n(all.begin(), stages(schedule), true);
  return with_recompute(std::move(schedule), all);
}

std::vector<bool> recomputed_stages(const Schedule& schedule) {
  std::vector<bool> recomputed(schedule.rank_of_stage.size(), false);
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (action.kind == ActionKind::recompute && in_range(schedule, action)) {
        recomputed[static_cast<std::size_t>(action.stage)] = true;
      }
    }
  }
  return recomputed;
}

}  // namespace plumb
