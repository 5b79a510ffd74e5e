// The shapes over which every registered schedule is tested, and which of them each is defined for.
#pragma once

#include <string_view>

#include "common/schedule/generators/registry.hpp"

namespace plumb {

struct GridShape {
  int chunks, microbatches, ranks;
};

// Those of torch.distributed.pipelining's own tests (test_schedule.py).
inline constexpr GridShape pytorch_grid[] = {{2, 2, 2},   {2, 4, 4},    {2, 8, 2},  {2, 8, 4},  {2, 8, 8},  {4, 4, 4},
                                             {4, 8, 4},   {4, 8, 8},    {4, 16, 4}, {4, 32, 4}, {4, 64, 4}, {4, 16, 16},
                                             {4, 32, 32}, {4, 128, 64}, {3, 2, 2},  {3, 8, 2},  {3, 12, 4}, {4, 6, 3},
                                             {4, 10, 5},  {2, 3, 4},    {2, 4, 4},  {2, 10, 4}, {2, 15, 4}};

// Whether a schedule is defined for so many chunks, microbatches and ranks.
inline bool applies(const ScheduleEntry& entry, const GridShape& shape) {
  if (entry.name == "chimera") return shape.ranks % 2 == 0 && shape.microbatches % shape.ranks == 0;
  if (entry.name == "dualpipe") {
    return shape.ranks % 2 == 0 && shape.microbatches % 2 == 0 && shape.microbatches >= 2 * shape.ranks;
  }
  if (entry.name == "dualpipe-v") return shape.microbatches >= 2 * shape.ranks;
  if (entry.name == "hanayo") return shape.chunks % 2 == 0;
  if (entry.name == "pipedream-2bw") return shape.microbatches % shape.ranks == 0;
  return true;
}

// Of a rank: two of the schedule that is named for having several, one of those that need no more.
inline int fewest_chunks(std::string_view schedule) { return schedule == "interleaved-1f1b" ? 2 : 1; }

// With the chunks that the schedule can have, and as many slices as chunks where it cuts sequences.
inline ScheduleShape shape_for(const ScheduleEntry& entry, const GridShape& shape) {
  const int chunks = entry.fixed_chunks > 0 ? entry.fixed_chunks : shape.chunks;
  return {.ranks = shape.ranks,
          .microbatches = shape.microbatches,
          .chunks = entry.uses_chunks ? chunks : 1,
          .slices = entry.uses_slices ? shape.chunks : 1};
}

}  // namespace plumb
