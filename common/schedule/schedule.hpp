// A pipeline schedule: one list of actions per rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/schedule/action.hpp"

namespace plumb {

// What a generator is asked for.
struct ScheduleShape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;  // stages per rank
  bool operator==(const ScheduleShape&) const = default;
};

// A generator writes compute actions only; `lower` adds transfers, tied reductions and optimizer steps.
struct Schedule {
  std::string name;
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;
  std::vector<int> rank_of_stage;            // placement; size = number of stages
  std::vector<std::vector<Action>> actions;  // one list per rank, in the order of execution
  bool operator==(const Schedule&) const = default;
};

[[nodiscard]] inline int stages(const Schedule& schedule) { return static_cast<int>(schedule.rank_of_stage.size()); }

// True if two ranks hold the first and the last stage, so that a tied embedding's gradients are summed by messages.
[[nodiscard]] inline bool ends_on_two_ranks(const Schedule& schedule) {
  return schedule.rank_of_stage.front() != schedule.rank_of_stage.back();
}

// Stage s on rank s mod p: the "loop" placement of interleaved schedules.
[[nodiscard]] std::vector<int> loop_placement(int ranks, int chunks);

// Puts R before the first backward action (B or I) of every microbatch of the stages for which `recomputed` is true.
[[nodiscard]] Schedule with_recompute(Schedule schedule, const std::vector<bool>& recomputed);

// Per stage, whether any of its microbatches has an R.
[[nodiscard]] std::vector<bool> recomputed_stages(const Schedule& schedule);

struct LoweringOptions {
  bool optimizer = true;         // STEP per stage at the end of its rank's list
  bool tied_embeddings = false;  // REDUCE_TIED before it, on the ranks of the first and last stage if these differ
};

// Adds SEND directly after the producer and RECV as late as its consumer allows, but in the order in which the peer
// sends: NCCL has no tags, so the n-th receive meets the n-th send per directed pair of ranks and direction of the
// pipeline (activations and gradients have a queue each). Transfers between stages of one rank need no action. A tied
// stage steps last on its rank, so that the others' steps are done while it waits for its peer.
// Throws InputError (where = "schedule") when it is lowered already or a stage or microbatch is out of range.
[[nodiscard]] Schedule lower(const Schedule& compute_only, const LoweringOptions& options);

}  // namespace plumb
