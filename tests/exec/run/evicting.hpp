// A schedule that evicts on any even number of ranks, made by hand: bpipe does only from four on.
#pragma once

#include <utility>
#include <vector>

#include "common/schedule/generators/registry.hpp"

namespace plumb::exec::test {

// GPipe on p ranks of one stage. Rank x of the first half gives every second microbatch to rank p−1−x after its F, and
// takes it back before its B, which is later than that of the partner.
inline Schedule evicting_gpipe(int ranks, int microbatches) {
  Schedule schedule = generate_schedule("gpipe", {.ranks = ranks, .microbatches = microbatches});
  schedule.name = "gpipe that evicts";
  for (int x = 0; x < ranks / 2; ++x) {
    auto& own = schedule.actions[static_cast<std::size_t>(x)];
    auto& partner = schedule.actions[static_cast<std::size_t>(ranks - 1 - x)];
    std::vector<Action> of_own;
    for (const Action& action : own) {
      const bool away = action.microbatch % 2 == 0;
      if (away && action.kind == ActionKind::backward) of_own.push_back({ActionKind::load, x, action.microbatch});
      of_own.push_back(action);
      if (away && action.kind == ActionKind::forward) of_own.push_back({ActionKind::evict, x, action.microbatch});
    }
    std::vector<Action> of_partner;
    for (const Action& action : partner) {
      const bool away = action.microbatch % 2 == 0;
      of_partner.push_back(action);
      if (away && action.kind == ActionKind::forward) of_partner.push_back({ActionKind::evict, x, action.microbatch});
      if (away && action.kind == ActionKind::backward) of_partner.push_back({ActionKind::load, x, action.microbatch});
    }
    own = std::move(of_own);
    partner = std::move(of_partner);
  }
  return schedule;
}

// Two ranks that evict to each other. Rank 1 hands back at once what rank 0 has room for only after its last F, and
// evicts in between: to rank 0 two parcels travel whose places there are later than both their sends.
inline Schedule evicting_to_each_other() {
  Schedule schedule = generate_schedule("gpipe", {.ranks = 2, .microbatches = 4});
  schedule.name = "two that evict";
  using enum ActionKind;
  schedule.actions[0] = {{forward, 0, 0}, {evict, 0, 0},    {forward, 0, 1},  {forward, 0, 2},
                         {forward, 0, 3}, {load, 0, 0},     {evict, 1, 1},    {backward, 0, 0},
                         {load, 1, 1},    {backward, 0, 1}, {backward, 0, 2}, {backward, 0, 3}};
  schedule.actions[1] = {{forward, 1, 0}, {evict, 0, 0},    {load, 0, 0},     {forward, 1, 1},
                         {evict, 1, 1},   {forward, 1, 2},  {forward, 1, 3},  {backward, 1, 0},
                         {load, 1, 1},    {backward, 1, 1}, {backward, 1, 2}, {backward, 1, 3}};
  return schedule;
}

}  // namespace plumb::exec::test
