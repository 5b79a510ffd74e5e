#include "common/schedule/weight_versions.hpp"

#include <algorithm>
#include <map>

#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

std::size_t place_of(const Schedule& schedule, const Action& action) {
  return static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(schedule.microbatches) +
         static_cast<std::size_t>(action.microbatch);
}

// Calls visit(action, updates done on its stage before it) for every action of the schedule, rank by rank.
template <class Visit>
void walk(const Schedule& schedule, const Visit& visit) {
  std::vector<std::int32_t> done(schedule.rank_of_stage.size(), 0);
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (!in_range(schedule, action)) continue;
      std::int32_t& updates_done = done[static_cast<std::size_t>(action.stage)];
      visit(action, updates_done);
      if (action.kind == ActionKind::optimizer_step) ++updates_done;
    }
  }
}

bool ends_microbatch(const Action& action) {
  return action.kind == ActionKind::backward || action.kind == ActionKind::weight_gradient;
}

}  // namespace

std::vector<std::int32_t> weight_versions(const Schedule& schedule) {
  require_well_formed(schedule);
  std::vector<std::int32_t> versions(schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.microbatches),
                                     0);
  if (schedule.versions == WeightVersions::single) return versions;
  walk(schedule, [&](const Action& action, std::int32_t newest) {
    if (action.kind != ActionKind::forward) return;
    versions[place_of(schedule, action)] = schedule.versions == WeightVersions::stashed
                                               ? newest
                                               : std::max(0, action.microbatch / schedule.update_every - 1);
  });
  return versions;
}

namespace {

// Calls visit(action, versions that its stage has from it on) for every action that may change that.
template <class Visit>
void walk_versions(const Schedule& schedule, const Visit& visit) {
  const std::vector<std::int32_t> versions = weight_versions(schedule);
  if (schedule.versions == WeightVersions::single) return;
  // Per stage, how many actions still need each version: every F that uses it (delayed versions are known beforehand)
  // and what ends its microbatch.
  std::vector<std::map<std::int32_t, int>> needed(schedule.rank_of_stage.size());
  const bool known = schedule.versions == WeightVersions::delayed;
  walk(schedule, [&](const Action& action, std::int32_t) {
    const bool needs = ends_microbatch(action) || (known && action.kind == ActionKind::forward);
    if (needs && known) ++needed[static_cast<std::size_t>(action.stage)][versions[place_of(schedule, action)]];
  });
  walk(schedule, [&](const Action& action, std::int32_t newest) {
    auto& of_stage = needed[static_cast<std::size_t>(action.stage)];
    const auto use = [&](int by) {
      const std::int32_t version = versions[place_of(schedule, action)];
      if ((of_stage[version] += by) == 0) of_stage.erase(version);
    };
    if (action.kind == ActionKind::optimizer_step) {
      ++newest;
    } else if (action.kind == ActionKind::forward) {
      use(known ? -1 : 1);
    } else if (ends_microbatch(action)) {
      use(-1);
    } else {
      return;
    }
    int kept = of_stage.contains(newest) ? 0 : 1;
    for (const auto& [version, count] : of_stage) kept += version <= newest ? 1 : 0;
    visit(action, kept);
  });
}

}  // namespace

std::vector<int> weight_versions_kept(const Schedule& schedule) {
  std::vector<int> most(schedule.rank_of_stage.size(), 1);
  walk_versions(schedule, [&](const Action& action, int kept) {
    int& of_stage = most[static_cast<std::size_t>(action.stage)];
    of_stage = std::max(of_stage, kept);
  });
  return most;
}

std::map<Action, int> weight_version_changes(const Schedule& schedule) {
  std::map<Action, int> changes;
  std::vector<int> now(schedule.rank_of_stage.size(), 1);
  walk_versions(schedule, [&](const Action& action, int kept) {
    int& of_stage = now[static_cast<std::size_t>(action.stage)];
    if (kept != of_stage) changes.emplace(action, kept - of_stage);
    of_stage = kept;
  });
  return changes;
}

}  // namespace plumb
