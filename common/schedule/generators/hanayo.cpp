// Hanayo (Liu et al., arXiv 2308.15762, section 3): W waves, v = 2W chunks per rank; even chunks run down the ranks,
// odd ones back up.
//
// Order:  in slots of one chunk's F or B, microbatch k enters at slot 2k: F of stage s runs at s + 2k, B at
//         2pv−1−s + 2k. So a rank alternates between two streams that never meet: in one the F of its even chunks
//         (ascending), then the B of its odd chunks (descending), which starts at slot r; in the other the F of the odd
//         and the B of the even ones, which starts at 2p−1−r. Per chunk p microbatches; then the next p microbatches,
//         in the same streams. A last group of fewer leaves its slots empty.
// Bubble: with m = n·p, t_F and t_B one chunk's times: 2(p−1)(min(t_F, t_B) + n·|t_F − t_B|); the paper's 2(p−1)t_F for
//         t_B = t_F, and 4(p−1)t_F for t_B = 2t_F and m = p.
// Memory: p − (p−1−r)/v for m ≥ p.
#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/generators/generators.hpp"

namespace plumb {
namespace {

// The stage of a chunk of rank r.
int stage_of(int chunk, int p, int r) { return chunk * p + (chunk % 2 == 0 ? r : p - 1 - r); }

// What a rank does in one stream: F of the chunks first, first + 2, …, then B of the others in descending order.
std::vector<Action> stream(const ScheduleShape& shape, int r, int first) {
  const int p = shape.ranks;
  const int v = shape.chunks;
  std::vector<Action> actions;
  for (int group = 0; group < shape.microbatches; group += p) {
    for (int chunk = first; chunk < v; chunk += 2) {
      for (int k = group; k < group + p; ++k) actions.push_back({ActionKind::forward, stage_of(chunk, p, r), k});
    }
    for (int chunk = v - 1 - first; chunk >= 0; chunk -= 2) {
      for (int k = group; k < group + p; ++k) actions.push_back({ActionKind::backward, stage_of(chunk, p, r), k});
    }
  }
  return actions;
}

}  // namespace

Schedule generate_hanayo(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("hanayo", shape);
  if (shape.chunks % 2 != 0) {
    throw InputError(
        "schedule hanayo", fmt::format("{} chunks per rank, but each wave has two", shape.chunks),
        shape.chunks == 1 ? "take 2 chunks" : fmt::format("take {} or {} chunks", shape.chunks - 1, shape.chunks + 1));
  }
  // Whole groups are built, and must not be too large either.
  const std::int64_t groups = (std::int64_t{shape.microbatches} + shape.ranks - 1) / shape.ranks;
  const ScheduleShape whole{
      .ranks = shape.ranks, .microbatches = static_cast<int>(groups * shape.ranks), .chunks = shape.chunks};
  static_cast<void>(empty_schedule("hanayo", whole));
  schedule.rank_of_stage = wave_placement(shape.ranks, shape.chunks);
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(r)];
    const std::vector<Action> down = stream(shape, r, 0);
    const std::vector<Action> up = stream(shape, r, 1);
    const auto ahead = static_cast<std::size_t>(shape.ranks - r);  // slots from r until 2p−1−r, every second one
    // Phase 1: (p−r) of the stream that starts earlier
    list.assign(down.begin(), down.begin() + shape.ranks - r);
    // Phase 2: both in turn
    for (std::size_t k = ahead; k < down.size(); ++k) {
      list.push_back(up[k - ahead]);
      list.push_back(down[k]);
    }
    // Phase 3: the remaining (p−r) of the other
    list.insert(list.end(), up.end() - (shape.ranks - r), up.end());
    std::erase_if(list, [&](const Action& action) { return action.microbatch >= shape.microbatches; });
  }
  return schedule;
}

}  // namespace plumb
