#include "common/schedule/vocabulary_parts.hpp"

#include <string>

#include "common/base/error.hpp"

namespace plumb {

std::vector<Action> joined_behind(const Schedule& schedule, const Action& action) {
  const StageSort sort = sort_of_stage(schedule, action.stage);
  const Action all_reduce{ActionKind::all_reduce, action.stage, action.microbatch};
  const Action reduce{ActionKind::reduce, action.stage, action.microbatch};
  const bool two = schedule.vocabulary_barriers == 2;
  switch (action.kind) {
    case ActionKind::forward:
      if (sort == StageSort::embedding) return {reduce};
      return sort == StageSort::head && two ? std::vector{all_reduce} : std::vector<Action>{};
    case ActionKind::input_gradient:
      return sort == StageSort::head ? std::vector{all_reduce, reduce} : std::vector<Action>{};
    case ActionKind::backward:
      return sort == StageSort::head ? std::vector{reduce} : std::vector<Action>{};
    default:
      return {};
  }
}

std::vector<Action> joined_before(const Schedule& schedule, const Action& action) {
  const StageSort sort = sort_of_stage(schedule, action.stage);
  const bool reads = sort == StageSort::head ? action.kind == ActionKind::forward
                                             : sort == StageSort::embedding && action.kind == ActionKind::backward;
  if (!reads) return {};
  return {{ActionKind::broadcast, action.stage, action.microbatch}};
}

std::optional<Action> joined_for(const Schedule& schedule, const Action& action) {
  if (schedule.vocabulary_barriers == 0 || !is_compute(action.kind)) return std::nullopt;
  const bool forward = action.kind == ActionKind::forward;
  const bool gradient = makes_input_gradient(action.kind);
  const auto of_first = [&](ActionKind kind, int (*part)(const Schedule&, int)) {
    return Action{kind, part(schedule, 0), action.microbatch};
  };
  switch (sort_of_stage(schedule, action.stage)) {
    case StageSort::layers:
      if (forward && action.stage == 0) return of_first(ActionKind::reduce, embedding_part);
      if (gradient && action.stage + 1 == stages(schedule)) return of_first(ActionKind::reduce, head_part);
      return std::nullopt;
    case StageSort::head:
      if (forward) return of_first(ActionKind::broadcast, head_part);
      // T; with one barrier I needs no other part.
      if (action.kind != (schedule.vocabulary_barriers == 2 ? ActionKind::backward : ActionKind::weight_gradient)) {
        return std::nullopt;
      }
      return of_first(ActionKind::all_reduce, head_part);
    case StageSort::embedding:
      return gradient ? std::optional(of_first(ActionKind::broadcast, embedding_part)) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<Action> makers_of(const Schedule& schedule, const Action& joined) {
  const bool head = sort_of_stage(schedule, joined.stage) == StageSort::head;
  if (joined.kind == ActionKind::broadcast) {
    return {{head ? ActionKind::forward : ActionKind::backward, neighbour_of_parts(schedule, joined.stage),
             joined.microbatch}};
  }
  const bool of_forward = !head || (joined.kind == ActionKind::all_reduce && schedule.vocabulary_barriers == 2);
  std::vector<Action> makers;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    makers.push_back({of_forward ? ActionKind::forward : ActionKind::backward, part_on(schedule, joined.stage, rank),
                      joined.microbatch});
  }
  return makers;
}

void require_parts(const Schedule& schedule) {
  const auto refuse = [](const std::string& problem) { throw InputError("schedule", problem); };
  if (schedule.vocabulary_barriers == 0) return;
  if (schedule.vocabulary_barriers < 0 || schedule.vocabulary_barriers > 2) {
    refuse("a divided vocabulary has one or two barriers, not " + std::to_string(schedule.vocabulary_barriers));
  }
  if (schedule.ranks < 2) refuse("a vocabulary is divided over at least two ranks");
  if (replicas(schedule) > 1 || schedule.update_every > 0 || schedule.slices > 1 || !schedule.overlapped.empty()) {
    refuse("a divided vocabulary with two replicas, updates within the step, slices or overlapped pairs is not built");
  }
  if (stages(schedule) < schedule.ranks) {
    refuse(std::to_string(all_stages(schedule)) + " stages, too few for two parts of the vocabulary on each of " +
           std::to_string(schedule.ranks) + " ranks");
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const int part : {head_part(schedule, rank), embedding_part(schedule, rank)}) {
      if (rank_in_replica(schedule, 0, part) == rank) continue;
      refuse("stage " + std::to_string(part) + " is rank " + std::to_string(rank) +
             "'s part of the vocabulary, but stands on rank " + std::to_string(rank_in_replica(schedule, 0, part)));
    }
  }
}

}  // namespace plumb
