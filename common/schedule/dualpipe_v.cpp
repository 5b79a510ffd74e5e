// DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe, dualpipev.py): DualPipe (arXiv 2412.19437, section 3.2.1) cut
// in half, two chunks per rank, rank r holding stages r and 2p−1−r, so that there is one replica of the weights.
//
// Order, digits for the chunk, X&Y overlapped, m ≥ 2p:
//   1: 2(p−r−1) × F0
//   2: (r+1) × (F0, F1)
//   3: (p−r−1) × (I1, W, F1)
//   4: (m−2p+r+1) × (F0&B1, F1&B0); the last rank's first F0, B1 one after the other
//   5: (p−r−1) × (B1, F1&B0)
//   6: (r+1) × (B1, B0), from the middle on I for B: at i = ⌊(r+1)/2⌋ before B1 if r is odd, before B0 if it is even
//   7: (p−r−1) × (W, I0)
//   8: (r+1) × W
// W: the oldest that is due.
// Bubble: in one chunk's times, F = I ≥ W: (p−1)(F&B + B − 3W).
// Memory: (2p+1)/2.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "common/base/error.hpp"
#include "common/schedule/generators.hpp"

namespace plumb {
namespace {

// One rank's list while it grows.
struct RankList {
  int stage[2];
  std::vector<Action>& actions;
  std::vector<OverlappedPair>& overlapped;
  int f[2] = {};  // of each chunk the next microbatch
  int b[2] = {};
  std::deque<Action> due = {};  // W of the I that have run

  void forward(int chunk) { actions.push_back({ActionKind::forward, stage[chunk], f[chunk]++}); }
  void backward(int chunk) { actions.push_back({ActionKind::backward, stage[chunk], b[chunk]++}); }
  void input_gradient(int chunk) {
    due.push_back({ActionKind::weight_gradient, stage[chunk], b[chunk]});
    actions.push_back({ActionKind::input_gradient, stage[chunk], b[chunk]++});
  }
  void weight_gradient() {
    actions.push_back(due.front());
    due.pop_front();
  }
  void forward_and_backward(int forward_chunk, int backward_chunk) {
    forward(forward_chunk);
    backward(backward_chunk);
    overlapped.push_back({actions[actions.size() - 2], actions.back()});
  }
};

}  // namespace

Schedule generate_dualpipe_v(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("dualpipe-v", shape);
  const int p = shape.ranks;
  const int m = shape.microbatches;
  if (m < 2 * p) {
    throw InputError("schedule dualpipe-v", fmt::format("{} microbatches on {} ranks: it needs two per rank", m, p),
                     fmt::format("take at least {} microbatches, or zb-v", 2 * p));
  }
  schedule.rank_of_stage = wave_placement(p, 2);
  for (int r = 0; r < p; ++r) {
    RankList list{.stage = {r, 2 * p - 1 - r},
                  .actions = schedule.actions[static_cast<std::size_t>(r)],
                  .overlapped = schedule.overlapped};
    // Phase 1: 2(p−r−1) × F0
    for (int i = 0; i < 2 * (p - r - 1); ++i) list.forward(0);
    // Phase 2: (r+1) × (F0, F1)
    for (int i = 0; i < r + 1; ++i) {
      list.forward(0);
      list.forward(1);
    }
    // Phase 3: (p−r−1) × (I1, W, F1)
    for (int i = 0; i < p - r - 1; ++i) {
      list.input_gradient(1);
      list.weight_gradient();
      list.forward(1);
    }
    // Phase 4, steady: (m−2p+r+1) × (F0&B1, F1&B0)
    for (int i = 0; i < m - 2 * p + r + 1; ++i) {
      if (i == 0 && r == p - 1) {
        list.forward(0);
        list.backward(1);
      } else {
        list.forward_and_backward(0, 1);
      }
      list.forward_and_backward(1, 0);
    }
    // Phase 5: (p−r−1) × (B1, F1&B0)
    for (int i = 0; i < p - r - 1; ++i) {
      list.backward(1);
      list.forward_and_backward(1, 0);
    }
    // Phase 6: (r+1) × (B1, B0), the second half with I for B; of 2(r+1) gradients the first r+1 are whole
    for (int i = 0; i < 2 * (r + 1); ++i) {
      const int chunk = i % 2 == 0 ? 1 : 0;
      if (i < r + 1) {
        list.backward(chunk);
      } else {
        list.input_gradient(chunk);
      }
    }
    // Phase 7: (p−r−1) × (W, I0)
    for (int i = 0; i < p - r - 1; ++i) {
      list.weight_gradient();
      list.input_gradient(0);
    }
    // Phase 8: (r+1) × W
    for (int i = 0; i < r + 1; ++i) list.weight_gradient();
  }
  std::ranges::sort(schedule.overlapped);
  return schedule;
}

}  // namespace plumb
