#include "common/schedule/generators/dualpipe_steps.hpp"

#include <deque>

namespace plumb {
namespace {

// One rank's list while it grows.
class RankList {
 public:
  RankList(Schedule& schedule, int rank, const std::array<DualPipeDirection, 2>& directions)
      : list_(schedule.actions[static_cast<std::size_t>(rank)]), overlapped_(schedule.overlapped) {
    for (std::size_t direction = 0; direction < 2; ++direction) {
      ways_[direction] = {.stage = directions[direction].stage,
                          .forward = directions[direction].first_microbatch,
                          .backward = directions[direction].first_microbatch};
    }
  }

  void f(int direction) { list_.push_back(next_f(direction)); }
  void b(int direction) { list_.push_back(next_b(direction)); }
  void i(int direction) {
    const Action action{ActionKind::input_gradient, at(direction).stage, at(direction).backward++};
    list_.push_back(action);
    waiting_.push_back({ActionKind::weight_gradient, action.stage, action.microbatch});
  }
  void w() {
    list_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void f_and_b(int way_of_f, int way_of_b) {
    overlapped_.push_back({next_f(way_of_f), next_b(way_of_b)});
    list_.push_back(overlapped_.back().first);
    list_.push_back(overlapped_.back().second);
  }

 private:
  struct Way {
    int stage = 0;
    int forward = 0;  // the next microbatch
    int backward = 0;
  };
  Way& at(int direction) { return ways_[static_cast<std::size_t>(direction)]; }
  Action next_f(int direction) { return {ActionKind::forward, at(direction).stage, at(direction).forward++}; }
  Action next_b(int direction) { return {ActionKind::backward, at(direction).stage, at(direction).backward++}; }

  std::vector<Action>& list_;
  std::vector<OverlappedPair>& overlapped_;
  std::array<Way, 2> ways_;
  std::deque<Action> waiting_;  // W
};

}  // namespace

void append_dualpipe_steps(Schedule& schedule, int rank, const DualPipeRank& shape) {
  RankList list(schedule, rank, shape.directions);
  const int half = shape.half;
  const int h = shape.h;
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
  // Phase 4, steady: (m−2H+h+1) × (F0&B1, F1&B0), m microbatches each direction
  for (int n = 0; n < shape.microbatches - 2 * half + h + 1; ++n) {
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
    const int direction = n % 2 == 0 ? 1 : 0;
    if (n < h + 1) {
      list.b(direction);
    } else {
      list.i(direction);
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

}  // namespace plumb
