// Messages that their senders' own threads hand over.
#include "common/timeline/diff/diff.hpp"
#include "common/timeline/diff/replay.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {
namespace {

using test::Case;

struct SendRun {
  std::vector<Seconds> sends;  // per node
  Timeline timeline;
};

// Each SEND takes `time` of its rank, behind what stands before it in the rank's list.
SendRun run_with_sends(const Case& made, Seconds time) {
  SendRun run{.sends = std::vector<Seconds>(made.graph.nodes.size()), .timeline = {}};
  struct Send {
    Action action;
    int rank;
    NodeId behind;
    Seconds later;  // than its end
  };
  std::vector<Send> sends;
  for (std::size_t rank = 0; rank < made.schedule.actions.size(); ++rank) {
    std::size_t occupied = 0;
    for (const Action& action : made.schedule.actions[rank]) {
      if (is_compute(action.kind)) ++occupied;
      if (!is_send(action.kind)) continue;
      const NodeId behind = made.graph.rank_order[rank].at(occupied - 1);
      sends.push_back({action, static_cast<int>(rank), behind, run.sends[behind]});
      run.sends[behind] += time;
    }
  }
  const Evaluation evaluation = evaluate(made.graph, durations(made.graph), {}, run.sends);
  run.timeline = test::timeline_of(made, TimelineSource::measured, evaluation);
  std::vector<Event> events = run.timeline.steps.front().events;
  for (const Send& send : sends) {
    const Seconds start = evaluation.end[send.behind] + send.later;
    events.push_back({send.action, send.rank, -1, start, start + time, {}, {}});
  }
  // A step lasts until its last node has ended: a message that is handed over later holds nobody.
  const Seconds lasts = run.timeline.steps.front().duration;
  run.timeline.steps.front() = ordered_step(std::move(events));
  run.timeline.steps.front().duration = lasts;
  return run;
}

}  // namespace

TEST_CASE("a rank goes on when it has handed over its messages") {
  // GPipe on two ranks: all forwards of a rank one after the other, a message of o seconds behind each but the last
  // rank's, which answers with the backwards: (m + 1) (F + B) + 2 (m − 1) o and the hop there and back.
  const int m = 5;
  const Schedule schedule = lower(generate_schedule("gpipe", {.ranks = 2, .microbatches = m}), {});
  const ScheduleGraph graph = build_graph(
      schedule,
      even_costs(2, {.forward = {4}, .input_gradient = {4}, .weight_gradient = {4}, .hop = {1}, .chunks = 1}));
  std::vector<Seconds> sends(graph.nodes.size());
  for (const NodeId node : graph.rank_order[0]) {
    if (graph.nodes[node].action.kind == ActionKind::forward) sends[node] = Seconds{0.5};
  }
  for (const NodeId node : graph.rank_order[1]) {
    if (graph.nodes[node].action.kind == ActionKind::backward) sends[node] = Seconds{0.5};
  }
  CHECK(evaluate(graph, durations(graph)).makespan.value == Approx((m + 1) * 12 + 2));
  CHECK(evaluate(graph, durations(graph), {}, sends).makespan.value == Approx((m + 1) * 12 + 2 + 2 * (m - 1) * 0.5));
}

TEST_CASE("sends are measured, replayed and told as a cause of their own") {
  int longer = 0;
  for (const Case& made : test::some_cases()) {
    const SendRun run = run_with_sends(made, Seconds{1e-4});
    const MeasuredDurations measured = measured_durations(made.graph, run.timeline.steps.front());
    for (std::size_t i = 0; i < run.sends.size(); ++i) {
      REQUIRE(measured.sends[i].value == Approx(run.sends[i].value));
      REQUIRE(measured.gaps[i].value == Approx(0).margin(1e-12));
    }
    REQUIRE(std::abs(replay(made.graph, run.timeline.steps.front()).error_fraction) < 1e-12);

    const Timeline predicted = test::predicted_of(made);
    const Seconds growth = run.timeline.steps.front().duration - predicted.steps.front().duration;
    if (growth.value > 1e-5) ++longer;
    for (const DiffCause& cause : diff(predicted, run.timeline).causes) {
      INFO(cause.cause);
      REQUIRE(cause.seconds.value == Approx(cause.cause == "sends" ? growth.value : 0).margin(1e-12));
    }
  }
  CHECK(longer > 20);
}

}  // namespace plumb
