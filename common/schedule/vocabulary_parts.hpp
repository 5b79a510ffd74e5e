// A vocabulary that is divided over a pipeline's ranks (Yeung et al., arXiv 2411.05288): each rank has a part of the
// head's weights and of the embedding's, as two stages of its own behind those that follow one another.
//
// Head, of a microbatch k: BCAST gives the last stage's output to all ranks; each makes the logits of its part of the
// vocabulary and their softmax; ALLRED makes it that of the whole vocabulary; REDUCE adds up the parts' gradients of
// that output. S and T are the paper's passes. With two barriers (its Algorithm 1) S is F and T is B, between ALLRED
// and REDUCE. With one (Algorithm 2) S is F and I, by the part's own softmax; REDUCE follows ALLRED at once, with
// summands that are scaled by it, and T is W, whenever there is time. Embedding: F looks up the tokens of the part,
// REDUCE adds them up for the first stage; BCAST gives the gradient of that back, and B adds it to the part's rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// What a stage is part of.
enum class StageSort : std::uint8_t { layers, head, embedding };

// "head part", "embedding part"; nothing of a stage of layers.
[[nodiscard]] constexpr std::string_view name_of(StageSort sort) {
  if (sort == StageSort::layers) return "";
  return sort == StageSort::head ? "head part" : "embedding part";
}

// By the numbers of stages alone, as a schedule and its costs have them: `chain` follow one another.
[[nodiscard]] constexpr StageSort sort_of_stage(int stage, int chain, int ranks) {
  if (stage < chain) return StageSort::layers;
  return stage < chain + ranks ? StageSort::head : StageSort::embedding;
}
[[nodiscard]] inline StageSort sort_of_stage(const Schedule& schedule, int stage) {
  return sort_of_stage(stage, stages(schedule), schedule.ranks);
}
// "head part"; nothing where the vocabulary is whole, too.
[[nodiscard]] inline std::string_view part_name(const Schedule& schedule, int stage) {
  return schedule.vocabulary_barriers > 0 ? name_of(sort_of_stage(schedule, stage)) : "";
}
[[nodiscard]] inline bool is_part(const Schedule& schedule, int stage) { return stage >= stages(schedule); }

// The stages of a rank's parts.
[[nodiscard]] inline int head_part(const Schedule& schedule, int rank) { return stages(schedule) + rank; }
[[nodiscard]] inline int embedding_part(const Schedule& schedule, int rank) {
  return stages(schedule) + schedule.ranks + rank;
}
// The same rank's part of what `part` is a part of.
[[nodiscard]] inline int part_on(const Schedule& schedule, int part, int rank) {
  const bool head = sort_of_stage(schedule, part) == StageSort::head;
  return head ? head_part(schedule, rank) : embedding_part(schedule, rank);
}

// The stage beside the parts, which has what is broadcast and needs what is reduced: the last or the first.
[[nodiscard]] inline int neighbour_of_parts(const Schedule& schedule, int part) {
  return sort_of_stage(schedule, part) == StageSort::head ? stages(schedule) - 1 : 0;
}
[[nodiscard]] inline int rank_beside_parts(const Schedule& schedule, int part) {
  return rank_in_replica(schedule, 0, neighbour_of_parts(schedule, part));
}

// Whether `after`, directly behind `before` in a list, is with it a pass T and S of one turn.
[[nodiscard]] inline bool are_of_one_turn(const Schedule& schedule, const Action& before, const Action& after) {
  const bool head = sort_of_stage(schedule, after.stage) == StageSort::head && before.stage == after.stage;
  const bool gradient = before.kind == ActionKind::backward || before.kind == ActionKind::weight_gradient;
  return head && gradient && after.kind == ActionKind::forward && before.microbatch + 1 == after.microbatch;
}

// What the parts do together behind an action of one of them, and before it.
[[nodiscard]] std::vector<Action> joined_behind(const Schedule& schedule, const Action& action);
[[nodiscard]] std::vector<Action> joined_before(const Schedule& schedule, const Action& action);

// What joins parts goes in the order of a rank's list in one of two streams: one has all broadcasts, another one all
// sums.
enum class JoinStream : std::uint8_t { broadcasts, sums };
[[nodiscard]] constexpr JoinStream stream_of(const Action& joined) {
  return joined.kind == ActionKind::broadcast ? JoinStream::broadcasts : JoinStream::sums;
}

// What joins the parts that an action cannot begin before, by the name of the first rank's part; none: nothing does.
[[nodiscard]] std::optional<Action> joined_for(const Schedule& schedule, const Action& action);
// The computing that it joins or passes on; B stands for whatever makes the gradient of a stage's input, B or I.
[[nodiscard]] std::vector<Action> makers_of(const Schedule& schedule, const Action& joined);

// Throws InputError unless the parts stand behind the other stages, one of each sort on each rank.
void require_parts(const Schedule& schedule);

}  // namespace plumb
