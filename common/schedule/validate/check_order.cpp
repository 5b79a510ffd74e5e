#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/schedule/validate/checks.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

class OrderCheck {
 public:
  explicit OrderCheck(ScheduleChecks& checks) : checks_(checks), schedule_(checks.schedule) {}

  void run() {
    for (int stage = 0; stage < all_stages(schedule_); ++stage) {
      for (int k = 0; k < schedule_.microbatches; ++k) check_microbatch(stage, k);
      if (schedule_.update_every > 0) {
        check_updates(stage);
        continue;
      }
      for (int replica = 0; replica < replicas(schedule_); ++replica) check_end(replica, stage);
    }
  }

 private:
  // `after` needs `before`, which stands later in the list of `rank`.
  void require(int rank, const Action& before, std::int32_t before_at, const Action& after, std::int32_t after_at) {
    if (before_at == nowhere || after_at == nowhere || before_at < after_at) return;
    checks_.report(
        ScheduleProblem::Kind::crossed, {rank, rank}, {after, before},
        fmt::format("rank {}: {} stands before {}, which it needs", rank, to_string(after), to_string(before)));
  }
  void require(const Action& before, const Action& after) {
    require(checks_.rank_of(after), before, checks_.placed(before), after, checks_.placed(after));
  }

  void check_microbatch(int stage, int k) {
    const Action forward{ActionKind::forward, stage, k};
    const Action again{ActionKind::recompute, stage, k};
    const Action gradient = checks_.gradient_action(stage, k);
    require(forward, again);
    require(again, gradient);
    require(forward, gradient);
    require({ActionKind::input_gradient, stage, k}, {ActionKind::weight_gradient, stage, k});
    // A slice attends to those before it; its gradient is complete when those behind it have added theirs.
    if (k % schedule_.slices > 0) {
      require({ActionKind::forward, stage, k - 1}, forward);
      require(gradient, checks_.gradient_action(stage, k - 1));
    }
    if (stage + 1 < stages(schedule_) && !crosses_ranks(schedule_, stage, k)) {
      require(forward, {ActionKind::forward, stage + 1, k});
      require(checks_.gradient_action(stage + 1, k), gradient);
    }
    for (const Action& action : {forward, gradient, Action{ActionKind::weight_gradient, stage, k}}) {
      check_made_for(action);
    }
    if (is_part(schedule_, stage)) check_passes(stage, k);
    if (!checks_.lowered) return;
    if (is_part(schedule_, stage)) return check_joined(stage, k);
    require(forward, {ActionKind::send_forward, stage, k});
    require(gradient, {ActionKind::send_backward, stage, k});
    require({ActionKind::receive_forward, stage, k}, forward);
    require({ActionKind::receive_backward, stage, k}, gradient);
  }

  // What other ranks make of it is the affair of the progress.
  void check_made_for(const Action& action) {
    const std::optional<Action> joined = joined_for(schedule_, action);
    if (!joined) return;
    for (const Action& needed : makers_of(schedule_, *joined)) {
      if (checks_.rank_of(needed) != checks_.rank_of(action)) continue;
      if (needed.stage == action.stage) continue;  // whose order is that of every stage
      require(checks_.maker_here(needed), action);
    }
  }

  // T of a head needs what all parts have made of S: with one barrier S is F and I and T is W, with two T is B. The
  // embedding has B.
  void check_passes(int stage, int k) {
    const bool in_two = schedule_.vocabulary_barriers == 1 && sort_of_stage(schedule_, stage) == StageSort::head;
    const Action wrong{in_two ? ActionKind::backward : ActionKind::input_gradient, stage, k};
    if (checks_.placed(wrong) == nowhere) return;
    const int rank = checks_.rank_of(wrong);
    checks_.report(ScheduleProblem::Kind::misplaced, {rank}, {wrong},
                   fmt::format("rank {}: {} of a part of the vocabulary, which has {} here", rank, to_string(wrong),
                               in_two ? "I and W" : "B"));
  }

  // What the parts of a vocabulary do together stands between the actions that it joins.
  void check_joined(int stage, int k) {
    const Action gradient = checks_.gradient_action(stage, k);
    for (const Action& action : {Action{ActionKind::forward, stage, k}, gradient}) {
      for (const Action& joined : joined_before(schedule_, action)) require(joined, action);
      for (const Action& joined : joined_behind(schedule_, action)) require(action, joined);
    }
    const Action all_reduce{ActionKind::all_reduce, stage, k};
    if (schedule_.vocabulary_barriers == 2) require(all_reduce, gradient);
    require(all_reduce, {ActionKind::weight_gradient, stage, k});
    if (schedule_.vocabulary_barriers == 1) require(all_reduce, {ActionKind::reduce, stage, k});
  }

  // The last weight gradient of a stage comes before its reductions, those before its rank's CLIP, that before its
  // step, and that before its updated weights are gathered.
  void check_end(int replica, int stage) {
    const int rank = rank_in_replica(schedule_, replica, stage);
    const Action step{ActionKind::optimizer_step, stage, no_microbatch};
    const std::int32_t step_at = checks_.end_position(ActionKind::optimizer_step, replica, stage);
    const Action clip = clip_of(schedule_, rank);
    const std::int32_t clipped_at = checks_.clip_position(rank);
    require(rank, clip, clipped_at, step, step_at);
    require_gradients(replica, stage, 0, schedule_.microbatches, clip, clipped_at);
    for (const ActionKind kind : {ActionKind::reduce_tied, ActionKind::reduce_gradient}) {
      const Action reduction{kind, stage, no_microbatch};
      const std::int32_t reduced_at = checks_.end_position(kind, replica, stage);
      require(rank, reduction, reduced_at, step, step_at);
      require(rank, reduction, reduced_at, clip, clipped_at);
      require_gradients(replica, stage, 0, schedule_.microbatches, reduction, reduced_at);
    }
    require_gradients(replica, stage, 0, schedule_.microbatches, step, step_at);
    if (checks_.gathers_first(replica, stage)) return;
    const std::int32_t gathered_at = checks_.end_position(ActionKind::unshard, replica, stage);
    require(rank, step, step_at, {ActionKind::unshard, stage, no_microbatch}, gathered_at);
  }

  // All weight gradients of the microbatches [first, end) come before `after`.
  void require_gradients(int replica, int stage, int first, int end, const Action& after, std::int32_t after_at) {
    if (after_at == nowhere) return;
    const int rank = rank_in_replica(schedule_, replica, stage);
    for (int k = first; k < end; ++k) {
      if (replica_of(schedule_, k) != replica) continue;
      for (const ActionKind kind : {ActionKind::backward, ActionKind::weight_gradient}) {
        const Action last{kind, stage, k};
        require(rank, last, checks_.placed(last), after, after_at);
      }
    }
  }

  // Update u applies the gradients of its microbatches and follows update u−1. With delayed versions F needs the
  // weights that update k/n − 2 made (n microbatches an update).
  void check_updates(int stage) {
    const int rank = rank_in_replica(schedule_, 0, stage);
    const int every = schedule_.update_every;
    const auto at = [&](int update) { return checks_.end_position(ActionKind::optimizer_step, 0, stage, update); };
    for (int update = 0; update < updates(schedule_); ++update) {
      const Action step{ActionKind::optimizer_step, stage, update};
      if (update > 0) require(rank, {ActionKind::optimizer_step, stage, update - 1}, at(update - 1), step, at(update));
      require_gradients(0, stage, update * every, std::min((update + 1) * every, schedule_.microbatches), step,
                        at(update));
    }
    if (schedule_.versions != WeightVersions::delayed) return;
    for (int k = 2 * every; k < schedule_.microbatches; ++k) {
      const int update = k / every - 2;
      const Action forward{ActionKind::forward, stage, k};
      require(rank, {ActionKind::optimizer_step, stage, update}, at(update), forward, checks_.placed(forward));
    }
  }

  ScheduleChecks& checks_;
  const Schedule& schedule_;
};

}  // namespace

void check_order(ScheduleChecks& checks) { OrderCheck(checks).run(); }

}  // namespace plumb
