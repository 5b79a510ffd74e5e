// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): stage s on rank s mod p, v chunks per rank.
//
// Table:  the microbatches go in m/g groups of g; per group each chunk in turn, per chunk each microbatch of the group.
//         The k-th forward of a rank is entry k; the k-th backward is entry k with chunk v−1−chunk.
//
// Group:  g = p. When p does not divide m, as in torch.distributed.pipelining: ⌊m/p⌋ groups (at least one) of equal
//         size.
//
// Order:  w × F, (mv−w) × (F, B), w × B with w = min(2(p−r−1) + (v−1)g, mv).
//
// Bubble: (p−1)(F+B)/v when p divides m.
//
// Memory: [2(p−r−1) + (v−1)g + 1]/v, at most m.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators.hpp"

namespace plumb {
namespace {

struct Entry {
  int microbatch;
  int chunk;
};

int group_size(const ScheduleShape& shape) {
  const int groups = std::max(1, shape.microbatches / shape.ranks);
  if (shape.microbatches % groups != 0) {
    throw InputError("schedule interleaved-1f1b",
                     fmt::format("{} microbatches on {} ranks would go in {} groups, which do not divide them",
                                 shape.microbatches, shape.ranks, groups),
                     fmt::format("take {} or {} microbatches, multiples of the ranks",
                                 shape.microbatches / shape.ranks * shape.ranks,
                                 (shape.microbatches / shape.ranks + 1) * shape.ranks));
  }
  return shape.microbatches / groups;
}

std::vector<Entry> table_of(const ScheduleShape& shape, int group) {
  std::vector<Entry> table;
  for (int first = 0; first < shape.microbatches; first += group) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int k = first; k < first + group; ++k) table.push_back({k, chunk});
    }
  }
  return table;
}

}  // namespace

Schedule generate_interleaved_1f1b(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("interleaved-1f1b", shape);
  const int p = shape.ranks;
  const int v = shape.chunks;
  const int g = group_size(shape);
  const std::vector<Entry> table = table_of(shape, g);
  const int total = static_cast<int>(table.size());
  for (int r = 0; r < p; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const auto forward = [&](int k) {
      const Entry& entry = table[static_cast<std::size_t>(k)];
      list.push_back({ActionKind::forward, entry.chunk * p + r, entry.microbatch});
    };
    const auto backward = [&](int k) {
      const Entry& entry = table[static_cast<std::size_t>(k)];
      list.push_back({ActionKind::backward, (v - 1 - entry.chunk) * p + r, entry.microbatch});
    };
    const int w = std::min(2 * (p - r - 1) + (v - 1) * g, total);
    // Phase 1, warm-up: w × F
    for (int k = 0; k < w; ++k) forward(k);
    // Phase 2, steady: (mv−w) × (F, B)
    for (int k = 0; k < total - w; ++k) {
      forward(w + k);
      backward(k);
    }
    // Phase 3, cool-down: w × B
    for (int k = total - w; k < total; ++k) backward(k);
  }
  return schedule;
}

}  // namespace plumb
