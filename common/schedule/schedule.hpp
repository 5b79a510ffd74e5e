// A pipeline schedule: one list of actions per rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/schedule/action.hpp"
#include "common/schedule/stage_placements.hpp"

namespace plumb {

// What a generator is asked for.
struct ScheduleShape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;        // stages per rank
  int slices = 1;        // parts of each sequence, where the schedule cuts it
  int group = 0;         // microbatches that a chunk runs before the next one (interleaved schedules); 0: their default
  int update_every = 0;  // microbatches per optimizer step, where weights are updated within the step; 0: the default
  bool overlap = false;  // runs steady forwards and backwards as overlapped pairs, where the schedule can do without
  int vocabulary_barriers = 0;  // of a vocabulary that is divided over the ranks; 0: it is not
  bool operator==(const ScheduleShape&) const = default;
};

// A forward and a backward of two microbatches that a rank runs as one, so that one hides the other's communication
// (OVERLAP_F_B in torch.distributed.pipelining). They stand next to each other in a list, in this order.
struct OverlappedPair {
  Action first;
  Action second;
  friend auto operator<=>(const OverlappedPair&, const OverlappedPair&) = default;
};

// Which weights F uses when a step has several updates. I and W of a microbatch always use those that its F used.
enum class WeightVersions : std::uint8_t {
  single,   // one STEP per stage, at the end: all F use the same
  stashed,  // the newest on the rank: older ones are kept while a microbatch still needs them (PipeDream)
  delayed,  // those one update before the newest that the microbatch's predecessors make (PipeDream-2BW)
};

// A generator writes compute actions, evictions and, where weights are updated within the step, numbered optimizer
// steps; `lower` adds transfers, reductions and the optimizer steps at the end.
struct Schedule {
  std::string name;
  int ranks = 1;
  int microbatches = 1;  // that the actions count: with slices, each slice is one (k·slices + slice)
  int chunks = 1;        // stages per rank and replica; where ranks hold different numbers, the largest
  int slices = 1;        // parts of each sequence: a slice needs the ones before it on the same stage
  std::vector<std::int64_t> slice_tokens = {};  // of each slice, where these are known to differ; empty: equal
  std::vector<int> rank_of_stage;               // placement; size = number of stages
  // Bidirectional schedules train two replicas: where the second one's stages stand; empty: there is one. The second
  // takes the microbatches from the middle on, and both sum their gradients before the optimizer's step.
  std::vector<int> second_rank_of_stage = {};
  std::vector<std::vector<Action>> actions;     // one list per rank, in the order of execution
  std::vector<OverlappedPair> overlapped = {};  // ascending
  WeightVersions versions = WeightVersions::single;
  int update_every = 0;  // microbatches whose gradients a numbered STEP applies; 0: STEP has no number
  // Where head and embedding are divided over the ranks by vocabulary (common/schedule/vocabulary_parts.hpp): how often
  // a microbatch waits for all ranks between its last F and its first B. 0: they are not.
  int vocabulary_barriers = 0;
  bool operator==(const Schedule&) const = default;
};

// Those that follow one another; and with the parts of a divided vocabulary, of which each rank has two behind them.
[[nodiscard]] inline int all_stages(const Schedule& schedule) {
  return static_cast<int>(schedule.rank_of_stage.size());
}
[[nodiscard]] inline int stages(const Schedule& schedule) {
  return all_stages(schedule) - (schedule.vocabulary_barriers > 0 ? 2 * schedule.ranks : 0);
}
[[nodiscard]] inline int replicas(const Schedule& schedule) { return schedule.second_rank_of_stage.empty() ? 1 : 2; }

// Of whole sequences.
[[nodiscard]] inline int whole_microbatches(const Schedule& schedule) {
  return schedule.microbatches / schedule.slices;
}

// The replica (0 or 1) that a microbatch goes through.
[[nodiscard]] inline int replica_of(const Schedule& schedule, int microbatch) {
  return replicas(schedule) == 2 && microbatch >= schedule.microbatches / 2 ? 1 : 0;
}

// Of the stage in one replica.
[[nodiscard]] inline int rank_in_replica(const Schedule& schedule, int replica, int stage) {
  return (replica == 0 ? schedule.rank_of_stage : schedule.second_rank_of_stage)[static_cast<std::size_t>(stage)];
}
[[nodiscard]] inline int rank_of(const Schedule& schedule, int stage, int microbatch) {
  return rank_in_replica(schedule, replica_of(schedule, microbatch), stage);
}

// Whether `rank` holds the stage in some replica.
[[nodiscard]] inline bool holds(const Schedule& schedule, int rank, int stage) {
  return rank_in_replica(schedule, 0, stage) == rank ||
         (replicas(schedule) == 2 && rank_in_replica(schedule, 1, stage) == rank);
}

// Of an EVICT or LOAD that stands in a rank's list: whether it sends there. The stage's own rank sends at EVICT, its
// partner at LOAD; the other two receive.
[[nodiscard]] inline bool sends_activations(const Schedule& schedule, int rank, const Action& eviction) {
  const bool own = rank_of(schedule, eviction.stage, eviction.microbatch) == rank;
  return own == (eviction.kind == ActionKind::evict);
}

// Whether any rank has an action of this kind; whether any sends activations to a partner for a while (EVICT, LOAD).
[[nodiscard]] bool has_action(const Schedule& schedule, ActionKind kind);
[[nodiscard]] bool evicts(const Schedule& schedule);

// The stages that a rank holds, in both replicas, ascending; and its CLIP, if it holds any.
[[nodiscard]] std::vector<int> stages_of_rank(const Schedule& schedule, int rank);
[[nodiscard]] Action clip_of(const Schedule& schedule, int rank);

// How many stages a rank holds of one replica, at least 1: its share of a microbatch is so many chunks; and the most
// that any rank holds, which is what `chunks` is.
[[nodiscard]] int chunks_of_rank(const Schedule& schedule, int rank);
[[nodiscard]] int most_chunks_of_rank(const Schedule& schedule);

// True if two ranks hold the first and the last stage, so that a tied embedding's gradients are summed by messages.
// False for two replicas in opposite directions: each rank of the ends holds both stages.
[[nodiscard]] bool ends_on_two_ranks(const Schedule& schedule);

// Puts R before the first backward action (B or I) of every microbatch of the `recomputed` stages, or of all that
// follow one another.
[[nodiscard]] Schedule with_recompute(Schedule schedule, const std::vector<bool>& recomputed);
[[nodiscard]] Schedule with_recompute(Schedule schedule);

// Per stage, whether any of its microbatches has an R.
[[nodiscard]] std::vector<bool> recomputed_stages(const Schedule& schedule);

struct LoweringOptions {
  bool optimizer = true;         // STEP per stage at the end of its rank's list, unless the schedule has its own
  bool data_parallel = false;    // REDUCE_GRAD before it, over the ranks that train the same stage on other data
  bool clips_gradients = false;  // CLIP of each rank between its last reduction and its first STEP
  bool tied_embeddings = false;  // REDUCE_TIED before it, on the ranks of the first and last stage if these differ
  WeightGathering gathering = WeightGathering::none;  // UNSHARD, where that says
};

// Adds SEND directly after the producer (after the second of an overlapped pair) and RECV as late as its consumer
// allows, but in the order in which the peer sends: NCCL has no tags, so the n-th receive meets the n-th send per
// directed pair of ranks and direction of the pipeline (activations and gradients have a queue each). So a rank that
// waits for a message only ever waits for those that were sent before it. Transfers between stages of one rank need no
// action. Of two replicas each stage's gradients are summed (REDUCE_GRAD) before its step. A tied stage steps last on
// its rank: others' steps are done while it waits. Throws InputError (where = "schedule") when it is lowered already or
// a stage or microbatch is out of range.
[[nodiscard]] Schedule lower(const Schedule& compute_only, const LoweringOptions& options);

// Without messages, reductions and optimizer steps without a number: what `lower` adds to it anew.
[[nodiscard]] Schedule without_messages(Schedule schedule);

}  // namespace plumb
