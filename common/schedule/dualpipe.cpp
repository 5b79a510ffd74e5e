// DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; step() of github.com/deepseek-ai/DualPipe): two pipelines in
// opposite directions that overlap F of one with B of the other. Stage s stands on rank s and, in the second replica,
// on rank p−1−s; p even, m even, m ≥ 2p.
//
// Order:  below. The rank is h = min(r, p−1−r) from its end of the pipeline, H = p/2. F0 and B0 belong to the replica
//         whose first stages stand at that end, F1 and B1 to the other; & overlaps two actions.
//         1: 2(H−h−1) × F0           5: (H−h−1) × (B1, F1&B0)
//         2: (h+1) × (F0, F1)        6: (h+1) × (B1, B0), from its middle on I instead of B
//         3: (H−h−1) × (I1, W, F1)   7: (H−h−1) × (W, I0)
//         4: (m/2−p+h+1) × (F0&B1, F1&B0), the first F0, B1 apart on the two middle ranks
//         8: (h+1) × W               W: the oldest I that has none
// Bubble: (H−1)(F&B + B − 3W) for F = I ≥ W, where F&B is the time of an overlapped pair, F+B if that saves nothing.
// Memory: p+1. Parameters are held twice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "common/base/error.hpp"
#include "common/schedule/generators.hpp"

namespace plumb {
namespace {

// The actions of one rank. Phase 0 and 1: the replica whose first stages are near, and the other one.
class RankList {
 public:
  RankList(Schedule& schedule, int rank)
      : list_(schedule.actions[static_cast<std::size_t>(rank)]), overlapped_(schedule.overlapped) {
    const bool second_half = rank >= schedule.ranks / 2;
    for (std::size_t phase = 0; phase < 2; ++phase) {
      const bool second_replica = (phase == 1) != second_half;
      ways_[phase] = {.stage = second_replica ? schedule.ranks - 1 - rank : rank,
                      .forward = second_replica ? schedule.microbatches / 2 : 0,
                      .backward = second_replica ? schedule.microbatches / 2 : 0};
    }
  }

  void f(int phase) { list_.push_back(next_f(phase)); }
  void b(int phase) { list_.push_back(next_b(phase)); }
  void i(int phase) {
    const Action action{ActionKind::input_gradient, way(phase).stage, way(phase).backward++};
    list_.push_back(action);
    waiting_.push_back({ActionKind::weight_gradient, action.stage, action.microbatch});
  }
  void w() {
    list_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void f_and_b(int phase_of_f, int phase_of_b) {
    overlapped_.push_back({next_f(phase_of_f), next_b(phase_of_b)});
    list_.push_back(overlapped_.back().first);
    list_.push_back(overlapped_.back().second);
  }

 private:
  struct Way {
    int stage = 0;
    int forward = 0;  // the next microbatch
    int backward = 0;
  };
  Way& way(int phase) { return ways_[static_cast<std::size_t>(phase)]; }
  Action next_f(int phase) { return {ActionKind::forward, way(phase).stage, way(phase).forward++}; }
  Action next_b(int phase) { return {ActionKind::backward, way(phase).stage, way(phase).backward++}; }

  std::vector<Action>& list_;
  std::vector<OverlappedPair>& overlapped_;
  std::array<Way, 2> ways_;
  std::deque<Action> waiting_;  // W
};

void append_steps(RankList& list, const ScheduleShape& shape, int rank) {
  const int half = shape.ranks / 2;
  const int h = std::min(rank, shape.ranks - 1 - rank);
  const bool middle = h == half - 1;
  // Phase 1: 2(H−h−1) × F0
  for (int n = 0; n < 2 * (half - h - 1); ++n) list.f(0);
  // Phase 2: (h+1) × (F0, F1)
  for (int n = 0; n < h + 1; ++n) {
    list.f(0);
    list.f(1);
  }
  // Phase 3: (H−h−1) × (I1, W, F1)
  for (int n = 0; n < half - h - 1; ++n) {
    list.i(1);
    list.w();
    list.f(1);
  }
  // Phase 4: (m/2−p+h+1) × (F0&B1, F1&B0)
  for (int n = 0; n < shape.microbatches / 2 - shape.ranks + h + 1; ++n) {
    if (n == 0 && middle) {
      list.f(0);  // apart, so that the other middle rank has its F sooner
      list.b(1);
    } else {
      list.f_and_b(0, 1);
    }
    list.f_and_b(1, 0);
  }
  // Phase 5: (H−h−1) × (B1, F1&B0)
  for (int n = 0; n < half - h - 1; ++n) {
    list.b(1);
    list.f_and_b(1, 0);
  }
  // Phase 6: (h+1) × (B1, B0), the second half of these h+1 pairs' 2(h+1) backwards with W apart
  for (int n = 0; n < 2 * (h + 1); ++n) {
    const int phase = n % 2 == 0 ? 1 : 0;
    if (n < h + 1) {
      list.b(phase);
    } else {
      list.i(phase);
    }
  }
  // Phase 7: (H−h−1) × (W, I0)
  for (int n = 0; n < half - h - 1; ++n) {
    list.w();
    list.i(0);
  }
  // Phase 8: (h+1) × W
  for (int n = 0; n < h + 1; ++n) list.w();
}

void require_pairs(const ScheduleShape& shape) {
  const std::string where = "schedule dualpipe";
  const int p = shape.ranks;
  if (p % 2 != 0) {
    throw InputError(where, fmt::format("{} ranks, but the two pipelines need an even number", p),
                     p == 1 ? "take 2 ranks" : fmt::format("take {} or {} ranks", p - 1, p + 1));
  }
  if (shape.microbatches < 2 * p) {
    throw InputError(where, fmt::format("{} microbatches on {} ranks, but it needs 2 per rank", shape.microbatches, p),
                     fmt::format("take {} microbatches or more", 2 * p));
  }
  if (shape.microbatches % 2 != 0) {
    throw InputError(where, fmt::format("{} microbatches, but each pipeline takes half of them", shape.microbatches),
                     fmt::format("take {} or {} microbatches", shape.microbatches - 1, shape.microbatches + 1));
  }
}

}  // namespace

Schedule generate_dualpipe(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipe", shape);
  require_pairs(shape);
  schedule.second_rank_of_stage.assign(schedule.rank_of_stage.rbegin(), schedule.rank_of_stage.rend());
  for (int r = 0; r < shape.ranks; ++r) {
    RankList list(schedule, r);
    append_steps(list, shape, r);
  }
  std::ranges::sort(schedule.overlapped);
  return schedule;
}

}  // namespace plumb
