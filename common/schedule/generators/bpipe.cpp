// BPipe (Kim et al., ICML 2023, section 3): 1F1B with its memory balanced. Rank x of the first half, which 1F1B fills
// most, hands activations to rank y = p−1−x and takes them back before their backward.
//
// Order:  as 1F1B. On rank x, which may hold c = ⌈(p+2)/2⌉: LOAD right after the B before its own, behind an F. EVICT
//         of the newest microbatch right after its F, if the next F, or a LOAD and that F, would not fit otherwise.
//
// Rank y: the other halves stand where no rank waits for them even if receives block, for B ≤ 3F: EVICT late, LOAD
//         early. (Sends must not block: EVICT and LOAD would have to come in one order on both ranks, which on many
//         ranks is free of waiting for a small range of B/F only.)
//
// Bubble: as 1F1B, (p−1)(F+B), with transfers that take no time.
// Memory: at most c on every rank, what it keeps for its partner counted: min(p−x, c) on rank x and, at any time, at
//         most p+2−c on rank y, whose own are x+1.
#include <algorithm>
#include <map>
#include <set>

#include "common/schedule/generators/generators.hpp"

namespace plumb {
namespace {

// 1F1B's order with the halves of a rank of the first half.
std::vector<Action> evict_and_load(const std::vector<Action>& plain, std::size_t cap) {
  std::vector<Action> list;
  std::set<int> held;
  std::set<int> away;
  std::size_t after_newest = 0;  // place in the list
  for (const Action& action : plain) {
    const int stage = action.stage;
    const int k = action.microbatch;
    if (action.kind == ActionKind::forward) {
      // Phase 1: room for F, if there is none
      if (held.size() == cap) {
        const int newest = *held.rbegin();
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(after_newest), {ActionKind::evict, stage, newest});
        away.insert(newest);
        held.erase(newest);
      }
      held.insert(k);
      list.push_back(action);
      after_newest = list.size();
      continue;
    }
    list.push_back(action);
    held.erase(k);
    // Phase 2: back what the next B needs
    if (away.erase(k + 1) > 0) {
      list.push_back({ActionKind::load, stage, k + 1});
      held.insert(k + 1);
    }
  }
  return list;
}

// Where rank y receives an eviction and sends a load: before the F or after the B of which microbatch. 1F1B with equal
// stages runs F(k) of the warm-up of rank r at (r+k)F, and ends B(k) at pF + (p−r)B + k(F+B): B(k) of rank x ends
// (y−x)B later than that of rank y, (y−x)·B/(F+B) periods.
struct Pair {
  int x = 0;
  int y = 0;
  int warm_up = 0;  // of x

  // EVICT of the warm-up follows F(k) at (x+k+1)F.
  [[nodiscard]] int received_before_f(int k) const { return std::max(0, x + k + 1 - y); }
  // EVICT of the steady phase stands before B(k−w), (y−x−1)B after that of rank y has ended: no sooner, even if B = 3F.
  [[nodiscard]] int received_after_b(int k) const { return k - warm_up + (3 * (y - x - 1) + 3) / 4; }
  // LOAD stands after B(k−1), which ends later than that of rank y.
  [[nodiscard]] static int sent_after_b(int k) { return k - 1; }
};

// The partner's order with the other halves of what stands in x's list.
std::vector<Action> other_halves(const std::vector<Action>& plain, const std::vector<Action>& of_x, const Pair& pair) {
  const int last = plain.back().microbatch;
  std::map<Action, std::vector<Action>> before;  // an F
  std::map<Action, std::vector<Action>> after;   // a B
  for (const Action& action : of_x) {
    if (!is_eviction(action.kind)) continue;
    const int k = action.microbatch;
    if (action.kind == ActionKind::evict && k < pair.warm_up) {
      before[{ActionKind::forward, pair.y, std::min(pair.received_before_f(k), last)}].push_back(action);
    } else {
      const int b = action.kind == ActionKind::evict ? pair.received_after_b(k) : pair.sent_after_b(k);
      after[{ActionKind::backward, pair.y, std::clamp(b, 0, last)}].push_back(action);
    }
  }
  std::vector<Action> list;
  for (const Action& action : plain) {
    const auto& first = before[action];
    list.insert(list.end(), first.begin(), first.end());
    list.push_back(action);
    const auto& then = after[action];
    list.insert(list.end(), then.begin(), then.end());
  }
  return list;
}

}  // namespace

Schedule generate_bpipe(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("bpipe", shape);
  const int p = shape.ranks;
  const auto cap = static_cast<std::size_t>((p + 3) / 2);
  schedule.actions = generate_one_f_one_b(shape).actions;
  for (int x = 0; x < p / 2; ++x) {
    const Pair pair{.x = x, .y = p - 1 - x, .warm_up = std::min(p - 1 - x, shape.microbatches)};
    std::vector<Action>& of_x = schedule.actions[static_cast<std::size_t>(x)];
    std::vector<Action>& of_y = schedule.actions[static_cast<std::size_t>(pair.y)];
    of_x = evict_and_load(of_x, cap);
    of_y = other_halves(of_y, of_x, pair);
  }
  return schedule;
}

}  // namespace plumb
