// PipeDream and PipeDream-2BW: which weights each microbatch uses, and how many copies a rank keeps.
#include "common/schedule/weight_versions.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

using VersionOf = std::map<int, int>;  // by microbatch

// Counted from the list alone: the newest when F runs.
VersionOf newest_at_forward(const std::vector<Action>& list) {
  VersionOf used;
  int updates = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::forward) used[action.microbatch] = updates;
    if (action.kind == ActionKind::optimizer_step) CHECK(action.microbatch == updates++);
  }
  return used;
}

// The most versions alive at a time: the newest, and those that a microbatch that is or will be under way needs.
int most_alive(const std::vector<Action>& list, const VersionOf& used) {
  int updates = 0;
  std::size_t most = 1;
  for (auto now = list.begin(); now != list.end(); ++now) {
    if (now->kind == ActionKind::optimizer_step) ++updates;
    std::set<int> alive{updates};
    for (auto later = now + 1; later != list.end(); ++later) {
      const bool uses = later->kind == ActionKind::forward || later->kind == ActionKind::backward;
      if (uses && used.at(later->microbatch) <= updates) alive.insert(used.at(later->microbatch));
    }
    most = std::max(most, alive.size());
  }
  return static_cast<int>(most);
}

int version_of(const Schedule& schedule, const std::vector<std::int32_t>& versions, int stage, int microbatch) {
  return versions[static_cast<std::size_t>(stage * schedule.microbatches + microbatch)];
}

}  // namespace

TEST_CASE("PipeDream: rank r's microbatch k uses the weights of max(0, k−p+r+1) updates, p−r versions are kept") {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 64; m += p < 5 ? 1 : 7) {
      CAPTURE(p, m);
      const Schedule schedule = generate_schedule("pipedream", {.ranks = p, .microbatches = m});
      CHECK(schedule.update_every == 1);
      const std::vector<std::int32_t> versions = weight_versions(schedule);
      const std::vector<int> kept = weight_versions_kept(schedule);
      for (int r = 0; r < p; ++r) {
        CAPTURE(r);
        const VersionOf used = newest_at_forward(schedule.actions[static_cast<std::size_t>(r)]);
        for (int k = 0; k < m; ++k) {
          CHECK(used.at(k) == std::max(0, k - std::min(p - r - 1, m)));
          CHECK(version_of(schedule, versions, r, k) == used.at(k));
        }
        // All are in use once p−r−1 microbatches have come after as many others.
        CHECK(kept[static_cast<std::size_t>(r)] <= std::min(m, p - r));
        if (m >= 2 * (p - r - 1)) CHECK(kept[static_cast<std::size_t>(r)] == p - r);
      }
    }
  }
}

TEST_CASE(
    "PipeDream-2BW: every rank's microbatch k uses the weights of max(0, k/e−1) updates, at most 2 versions are kept") {
  for (int p = 1; p <= testing::up_to(16); ++p) {
    for (const int every : {p, p + 1, 2 * p, 3 * p + 2}) {
      for (int updates = 1; updates <= 4; ++updates) {
        const int m = every * updates;
        CAPTURE(p, m, every);
        const Schedule schedule =
            generate_schedule("pipedream-2bw", {.ranks = p, .microbatches = m, .update_every = every == p ? 0 : every});
        CHECK(schedule.update_every == every);
        const std::vector<std::int32_t> versions = weight_versions(schedule);
        const std::vector<int> kept = weight_versions_kept(schedule);
        for (int r = 0; r < p; ++r) {
          const std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
          const VersionOf newest = newest_at_forward(list);
          VersionOf used;
          for (int k = 0; k < m; ++k) {
            used[k] = std::max(0, k / every - 1);
            CHECK(used[k] <= newest.at(k));  // it is there
            CHECK(version_of(schedule, versions, r, k) == used[k]);
          }
          CHECK(most_alive(list, used) <= 2);
          CHECK(kept[static_cast<std::size_t>(r)] == most_alive(list, used));
        }
      }
    }
  }
}

TEST_CASE("the last microbatch's gradient is applied: as many steps as updates, numbered, on every stage") {
  for (const auto& [name, updates] : std::map<std::string, int>{{"pipedream", 12}, {"pipedream-2bw", 3}}) {
    const Schedule schedule = generate_schedule(name, {.ranks = 4, .microbatches = 12});
    for (const auto& list : schedule.actions) {
      CHECK(list.back().kind == ActionKind::optimizer_step);
      CHECK(list.back().microbatch == updates - 1);
      CHECK(std::ranges::count(list, ActionKind::optimizer_step, &Action::kind) == updates);
    }
  }
}

// Counted anew behind each action: the newest, and those that a microbatch whose F was before still needs, or of
// delayed ones any microbatch behind it.
TEST_CASE("versions change where an update keeps the one before it, and where the last one that needs it ends") {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for (const int m : {3, 4, 6, 12}) {
      if (name == std::string("pipedream-2bw") && m % 3 != 0) continue;
      const Schedule schedule = generate_schedule(name, {.ranks = 3, .microbatches = m});
      const std::vector<std::int32_t> versions = weight_versions(schedule);
      const std::map<Action, int> changes = weight_version_changes(schedule);
      const bool delayed = schedule.versions == WeightVersions::delayed;
      for (int r = 0; r < 3; ++r) {
        const std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
        int now = 1;
        int newest = 0;
        for (auto at = list.begin(); at != list.end(); ++at) {
          newest += at->kind == ActionKind::optimizer_step ? 1 : 0;
          std::set<int> alive{newest};
          for (auto later = at + 1; later != list.end(); ++later) {
            const bool begun =
                std::find(list.begin(), at + 1, Action{ActionKind::forward, r, later->microbatch}) != at + 1;
            if (later->kind != ActionKind::backward || !(begun || delayed)) continue;
            const int used = version_of(schedule, versions, r, later->microbatch);
            if (used <= newest) alive.insert(used);
          }
          const auto change = changes.find(*at);
          now += change != changes.end() ? change->second : 0;
          CAPTURE(name, m, r, to_string(*at));
          CHECK(now == static_cast<int>(alive.size()));
        }
        CHECK(now == 1);
      }
    }
  }
  CHECK(weight_version_changes(generate_schedule("1f1b", {.ranks = 4, .microbatches = 8})).empty());
}
