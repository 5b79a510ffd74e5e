// The order of microbatches and chunks that the interleaved schedules share.
#pragma once

#include <string>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

struct InterleavedEntry {
  int microbatch = 0;
  int chunk = 0;
};

// The microbatches go in groups of g; per group each chunk in turn, per chunk each microbatch of the group. The k-th
// forward of a rank is entry k, its k-th backward entry k with chunk v−1−chunk.
struct InterleavedTable {
  int group = 1;  // g
  int ranks = 1;
  int chunks = 1;
  std::vector<InterleavedEntry> entries;

  [[nodiscard]] int total() const { return static_cast<int>(entries.size()); }
  // The k-th F, and the k-th B, I or W, of rank r.
  [[nodiscard]] Action forward(int r, int k) const;
  [[nodiscard]] Action gradient(ActionKind kind, int r, int k) const;
};

// g is shape.group (Megatron-LM's "microbatch group size per virtual pipeline stage"): p ≤ g ≤ m, and the last group
// may be smaller, but not smaller than p. Where none is asked for, as in torch.distributed.pipelining, max(1, ⌊m/p⌋)
// groups of equal size: g = p if p divides m. Throws InputError (where = "schedule NAME").
[[nodiscard]] InterleavedTable interleaved_table(const std::string& name, const ScheduleShape& shape);

}  // namespace plumb
