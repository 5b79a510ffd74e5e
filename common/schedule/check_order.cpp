#include <fmt/format.h>

#include "common/schedule/checks.hpp"

namespace plumb {
namespace {

class OrderCheck {
 public:
  explicit OrderCheck(ScheduleChecks& checks) : checks_(checks), schedule_(checks.schedule) {}

  void run() {
    for (int stage = 0; stage < stages(schedule_); ++stage) {
      for (int k = 0; k < schedule_.microbatches; ++k) check_microbatch(stage, k);
      check_end(stage);
    }
  }

 private:
  // `after` needs `before`, which stands later in the same list.
  void require(const Action& before, std::int32_t before_at, const Action& after, std::int32_t after_at) {
    if (before_at == nowhere || after_at == nowhere || before_at < after_at) return;
    const int rank = checks_.rank_of(after);
    checks_.report(
        ScheduleProblem::Kind::crossed, {rank, rank}, {after, before},
        fmt::format("rank {}: {} stands before {}, which it needs", rank, to_string(after), to_string(before)));
  }
  void require(const Action& before, const Action& after) {
    require(before, checks_.placed(before), after, checks_.placed(after));
  }

  void check_microbatch(int stage, int k) {
    const Action forward{ActionKind::forward, stage, k};
    const Action again{ActionKind::recompute, stage, k};
    const Action gradient = checks_.gradient_action(stage, k);
    require(forward, again);
    require(again, gradient);
    require(forward, gradient);
    require({ActionKind::input_gradient, stage, k}, {ActionKind::weight_gradient, stage, k});
    if (stage + 1 < stages(schedule_) && !crosses_ranks(schedule_, stage)) {
      require(forward, {ActionKind::forward, stage + 1, k});
      require(checks_.gradient_action(stage + 1, k), gradient);
    }
    if (!checks_.lowered) return;
    require(forward, {ActionKind::send_forward, stage, k});
    require(gradient, {ActionKind::send_backward, stage, k});
    require({ActionKind::receive_forward, stage, k}, forward);
    require({ActionKind::receive_backward, stage, k}, gradient);
  }

  // The last weight gradient of a stage comes before its tied reduction, and that before its step.
  void check_end(int stage) {
    const Action tied{ActionKind::reduce_tied, stage, no_microbatch};
    const Action step{ActionKind::optimizer_step, stage, no_microbatch};
    const std::int32_t tied_at = checks_.on_own_rank(tied, checks_.tied_of_stage[static_cast<std::size_t>(stage)]);
    const std::int32_t step_at = checks_.on_own_rank(step, checks_.step_of_stage[static_cast<std::size_t>(stage)]);
    require(tied, tied_at, step, step_at);
    if (tied_at == nowhere && step_at == nowhere) return;
    for (int k = 0; k < schedule_.microbatches; ++k) {
      for (const ActionKind kind : {ActionKind::backward, ActionKind::weight_gradient}) {
        const Action last{kind, stage, k};
        require(last, checks_.placed(last), tied, tied_at);
        require(last, checks_.placed(last), step, step_at);
      }
    }
  }

  ScheduleChecks& checks_;
  const Schedule& schedule_;
};

}  // namespace

void check_order(ScheduleChecks& checks) { OrderCheck(checks).run(); }

}  // namespace plumb
