#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/schedule.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

// Where the receiver needs a message: its F for an activation, its B or I for a gradient.
std::int32_t consumer_position(const ActionIndex& index, const Action& receive) {
  return receive.kind == ActionKind::receive_forward
             ? index.find(ActionKind::forward, receive.stage, receive.microbatch)
             : index.find_gradient(receive.stage, receive.microbatch);
}

// By position through all lists: where an action begins or ends that may be the second or first of an overlapped pair.
class PairEnds {
 public:
  PairEnds(const Schedule& schedule, const ActionIndex& index) : begins_(pair_begins(schedule, index)) {}

  // Whether `position` and the next one are one.
  [[nodiscard]] bool joins_next(std::int32_t position) const { return begins_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] std::int32_t begin(std::int32_t position) const {
    return position > 0 && joins_next(position - 1) ? position - 1 : position;
  }

 private:
  std::vector<bool> begins_;
};

struct PlacedReceive {
  int rank;
  std::int32_t before;  // position, through all ranks' lists, of the action that it stands before
  Action receive;
};

// Each queue's receives keep the order of its sends, so one stands no later than any receive behind it: it goes before
// the earliest consumer of itself and of all later messages of the queue.
std::vector<PlacedReceive> place_receives(const Schedule& schedule, const ActionIndex& index, const PairEnds& pairs) {
  const MessageQueues queues = message_queues(schedule);
  std::vector<std::vector<PlacedReceive>> of_queue(static_cast<std::size_t>(queues.count));
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      look_at_stop();
      if (!makes_message(schedule, action)) continue;
      const Message message = message_of(schedule, action);
      std::int32_t before = consumer_position(index, message.receive);
      before = before == nowhere ? index.first_of_rank[static_cast<std::size_t>(message.to) + 1] : pairs.begin(before);
      of_queue[static_cast<std::size_t>(queues.queue_of(message.send))].push_back(
          {message.to, before, message.receive});
    }
  }
  std::vector<PlacedReceive> all;
  for (auto& queue : of_queue) {
    std::int32_t earliest = std::numeric_limits<std::int32_t>::max();
    for (auto placed = queue.rbegin(); placed != queue.rend(); ++placed) {
      earliest = std::min(earliest, placed->before);
      placed->before = earliest;
    }
    all.insert(all.end(), queue.begin(), queue.end());
  }
  std::ranges::stable_sort(all, [](const PlacedReceive& a, const PlacedReceive& b) {
    return std::pair(a.rank, a.before) < std::pair(b.rank, b.before);
  });
  return all;
}

// STEP of every stage of the rank, tied stages last, each after its REDUCE_TIED; with two replicas after its
// REDUCE_GRAD. Stages ascend on all ranks, so that no two wait for each other. Where gradients are clipped all steps
// wait for CLIP, and that for all reductions.
void append_steps(const Schedule& schedule, int rank, const LoweringOptions& options, std::vector<Action>& list) {
  const int last = stages(schedule) - 1;
  const bool reduced = options.tied_embeddings && ends_on_two_ranks(schedule);
  const auto is_tied = [&](int stage) { return reduced && (stage == 0 || stage == last); };
  std::vector<Action> steps;
  for (const bool tied : {false, true}) {
    for (int stage = 0; stage < all_stages(schedule); ++stage) {
      if (!holds(schedule, rank, stage) || is_tied(stage) != tied) continue;
      if (tied) list.push_back({ActionKind::reduce_tied, stage, no_microbatch});
      if (replicas(schedule) == 2 || options.data_parallel)
        list.push_back({ActionKind::reduce_gradient, stage, no_microbatch});
      if (!options.optimizer) continue;
      (options.clips_gradients ? steps : list).push_back({ActionKind::optimizer_step, stage, no_microbatch});
    }
  }
  const std::vector<int> held = stages_of_rank(schedule, rank);
  if (options.clips_gradients && !held.empty()) list.push_back(clip_of(schedule, rank));
  list.insert(list.end(), steps.begin(), steps.end());
  if (options.gathering != WeightGathering::behind_steps) return;
  for (const int stage : held) {
    list.push_back({ActionKind::unshard, stage, no_microbatch});
  }
}

// Before the first F of each stage of a rank that gathers its weights then: [at, end) are one action or an overlapped
// pair. `gathered`: by stage, that have been.
void append_gathering(const Action* at, const Action* end, std::vector<bool>& gathered, std::vector<Action>& list) {
  for (; at != end; ++at) {
    const auto stage = static_cast<std::size_t>(at->stage);
    if (at->kind != ActionKind::forward || gathered[stage]) continue;
    gathered[stage] = true;
    list.push_back({ActionKind::unshard, at->stage, no_microbatch});
  }
}

// What joins the parts of a vocabulary: what a part reads comes before its turn, but on the rank that has it at once.
class JoinedParts {
 public:
  JoinedParts(const Schedule& schedule, int rank)
      : schedule_(schedule), list_(schedule.actions[static_cast<std::size_t>(rank)]), rank_(rank) {}

  void append_before(std::size_t at, std::vector<Action>& list) const {
    if (schedule_.vocabulary_barriers == 0) return;
    const bool begins = at == 0 || !are_of_one_turn(schedule_, list_[at - 1], list_[at]);
    if (begins) append_read(list_[at], list);
    if (at + 1 < list_.size() && are_of_one_turn(schedule_, list_[at], list_[at + 1])) append_read(list_[at + 1], list);
  }

  void append_behind(std::size_t at, std::vector<Action>& list) const {
    if (schedule_.vocabulary_barriers == 0) return;
    const Action& action = list_[at];
    const bool last = action.kind == ActionKind::forward && action.stage + 1 == stages(schedule_);
    if (last) list.push_back({ActionKind::broadcast, head_part(schedule_, rank_), action.microbatch});
    for (const Action& joined : joined_behind(schedule_, action)) list.push_back(joined);
  }

 private:
  void append_read(const Action& action, std::vector<Action>& list) const {
    const bool of_head = sort_of_stage(schedule_, action.stage) == StageSort::head;
    if (of_head && rank_beside_parts(schedule_, action.stage) == rank_) return;
    for (const Action& joined : joined_before(schedule_, action)) list.push_back(joined);
  }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  int rank_;
};

void require_not_lowered(const Schedule& schedule) {
  require_well_formed(schedule);
  const bool lowered = is_lowered(schedule);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      const bool own = is_compute(action.kind) || is_eviction(action.kind) || !lowered;
      if (own && in_range(schedule, action)) continue;
      const std::string where = "rank " + std::to_string(rank) + ": " + to_string(action);
      throw InputError("schedule", where + (own ? ": no such stage or microbatch" : ": it is lowered already"));
    }
  }
}

// Of two replicas each rank sums the tied table's gradients of the stages that it holds, and REDUCE_GRAD both ranks'.
void require_ends_together(const Schedule& schedule) {
  const int last = stages(schedule) - 1;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (holds(schedule, rank, 0) == holds(schedule, rank, last)) continue;
    throw InputError("schedule " + schedule.name,
                     "tied embeddings of two replicas are only summed where a rank with the first stage has the last "
                     "one, too; rank " +
                         std::to_string(rank) + " has one of them",
                     "replicas that run in opposite directions, or a model without tied embeddings");
  }
}

}  // namespace

Schedule lower(const Schedule& compute_only, const LoweringOptions& options) {
  require_not_lowered(compute_only);
  if (options.tied_embeddings && compute_only.update_every > 0 && ends_on_two_ranks(compute_only)) {
    throw InputError("schedule " + compute_only.name,
                     "tied embeddings on two ranks are not summed at updates within a step",
                     "a schedule with one update, or a model without tied embeddings");
  }
  if (options.tied_embeddings && compute_only.vocabulary_barriers > 0) {
    throw InputError("schedule " + compute_only.name, "parts of a tied table stand on one rank: nothing is summed");
  }
  if (options.tied_embeddings && replicas(compute_only) == 2) require_ends_together(compute_only);
  const ActionIndex index = index_actions(compute_only);
  const PairEnds pairs(compute_only, index);
  const std::vector<PlacedReceive> receives = place_receives(compute_only, index, pairs);
  Schedule lowered = compute_only;
  auto next = receives.begin();
  std::int32_t position = 0;
  for (std::size_t rank = 0; rank < lowered.actions.size(); ++rank) {
    std::vector<Action>& list = lowered.actions[rank];
    list.clear();
    const auto receive_up_to = [&](std::int32_t place) {
      while (next != receives.end() && next->rank == static_cast<int>(rank) && next->before <= place) {
        list.push_back((next++)->receive);
      }
    };
    std::vector<Action> sends;
    std::vector<bool> gathered(lowered.rank_of_stage.size(), options.gathering != WeightGathering::before_forward);
    const JoinedParts joined(compute_only, static_cast<int>(rank));
    std::size_t at = 0;
    for (const Action& action : compute_only.actions[rank]) {
      look_at_stop();
      // The message that F waits for may come while its weights are gathered.
      append_gathering(&action, &action + (pairs.joins_next(position) ? 2 : 1), gathered, list);
      receive_up_to(position);
      joined.append_before(at, list);
      list.push_back(action);
      joined.append_behind(at++, list);
      if (makes_message(compute_only, action)) sends.push_back(message_of(compute_only, action).send);
      if (pairs.joins_next(position++)) continue;
      list.insert(list.end(), sends.begin(), sends.end());
      sends.clear();
    }
    receive_up_to(position);  // what nothing consumes
    if (compute_only.update_every == 0) append_steps(compute_only, static_cast<int>(rank), options, list);
  }
  return lowered;
}

Schedule without_messages(Schedule schedule) {
  for (auto& list : schedule.actions) {
    std::erase_if(list, [&](const Action& action) { return is_added_by_lowering(schedule, action); });
  }
  return schedule;
}

}  // namespace plumb
