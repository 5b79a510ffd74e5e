#include "common/timeline/diff/replay.hpp"

#include <map>

#include "common/base/error.hpp"
#include "common/timeline/statistics.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {
namespace {

using test::Case;

const auto equal = [](Seconds value, Seconds expected) {
  return std::abs(value.value - expected.value) <= 1e-12 + 1e-9 * std::abs(expected.value);
};

}  // namespace

TEST_CASE("durations and pauses that were put in are measured again") {
  std::mt19937_64 random(1);
  for (const Case& made : test::some_cases()) {
    const std::vector<Seconds> durations = test::scaled(plumb::durations(made.graph), 0.3, 3, random);
    const std::vector<Seconds> gaps = test::random_gaps(durations.size(), 1e-4, random);
    const StepTimeline step = test::step_of(made.graph, evaluate(made.graph, durations, gaps));
    const MeasuredDurations measured = measured_durations(made.graph, step);
    REQUIRE(measured.durations.size() == durations.size());
    for (std::size_t i = 0; i < durations.size(); ++i) {
      REQUIRE(equal(measured.durations[i], durations[i]));
      REQUIRE(equal(measured.gaps[i], gaps[i]));
    }
  }
}

TEST_CASE("replay closes where the hosts made no pauses, and is short by what they made") {
  std::mt19937_64 random(2);
  for (const Case& made : test::some_cases()) {
    const std::vector<Seconds> durations = test::scaled(plumb::durations(made.graph), 0.3, 3, random);
    const Evaluation tight = evaluate(made.graph, durations);
    const Replay closed = replay(made.graph, test::step_of(made.graph, tight));
    REQUIRE(std::abs(closed.error_fraction) < 1e-12);

    const Evaluation loose = evaluate(made.graph, durations, test::random_gaps(durations.size(), 1e-4, random));
    const Replay open = replay(made.graph, test::step_of(made.graph, loose));
    REQUIRE(equal(open.step, tight.makespan));
    REQUIRE(open.error_fraction == Approx((tight.makespan - loose.makespan) / loose.makespan));
    REQUIRE(open.error_fraction < 0);
  }
}

TEST_CASE("a whole backward stands for its two halves, and they for it") {
  const Case split = test::make_case("zb-h1", {.ranks = 3, .microbatches = 6, .chunks = 1});
  StepTimeline step = test::step_of(split.graph, evaluate(split.graph));
  // Rank 2 fuses each I with its W where one follows the other.
  std::vector<Event> fused;
  int count = 0;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    Event event = step.events[i];
    if (event.rank == 2 && event.action.kind == ActionKind::weight_gradient) continue;
    if (event.rank == 2 && event.action.kind == ActionKind::input_gradient) {
      event.action.kind = ActionKind::backward;
      const auto weight = std::ranges::find_if(step.events, [&](const Event& other) {
        return other.action == test::action(ActionKind::weight_gradient, 2, event.action.microbatch);
      });
      event.end = event.end + (weight->end - weight->start);
      ++count;
    }
    fused.push_back(event);
  }
  REQUIRE(count == 6);
  const MeasuredDurations from_fused = measured_durations(split.graph, ordered_step(fused));
  for (std::size_t i = 0; i < split.graph.nodes.size(); ++i) {
    REQUIRE(equal(from_fused.durations[i], split.graph.nodes[i].duration));
  }

  const Case whole = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  step = test::step_of(whole.graph, evaluate(whole.graph));
  std::vector<Event> halves;
  for (const Event& event : step.events) {
    halves.push_back(event);
    if (event.action.kind != ActionKind::backward) continue;
    halves.back().action.kind = ActionKind::input_gradient;
    halves.back().end = event.start + (event.end - event.start) * 0.25;
    halves.push_back(event);
    halves.back().action.kind = ActionKind::weight_gradient;
    halves.back().start = event.start + (event.end - event.start) * 0.25;
  }
  REQUIRE(std::abs(replay(whole.graph, ordered_step(halves)).error_fraction) < 1e-12);
}

TEST_CASE("a collective lasts from when its later rank entered it") {
  const Case made = test::make_case("1f1b", {.ranks = 4, .microbatches = 4, .chunks = 1}, false, true);
  const Evaluation evaluation = evaluate(made.graph);
  std::vector<Event> events = test::step_of(made.graph, evaluation).events;
  // The graph has one node for both ranks; a run has an event of each, the earlier one of which waits.
  std::vector<Event> both;
  for (const Event& event : events) {
    both.push_back(event);
    if (event.action.kind != ActionKind::reduce_tied) continue;
    both.push_back(event);
    both.back().rank = 3;
    both.back().action.stage = 3;
    both.back().start = event.start / 2;
  }
  REQUIRE(both.size() == events.size() + 1);
  const MeasuredDurations measured = measured_durations(made.graph, ordered_step(both));
  for (std::size_t i = 0; i < made.graph.nodes.size(); ++i) {
    REQUIRE(equal(measured.durations[i], made.graph.nodes[i].duration));
  }
}

TEST_CASE("bubbles from events are those of the graph") {
  std::mt19937_64 random(3);
  for (const Case& made : test::some_cases()) {
    const Evaluation evaluation = evaluate(made.graph, test::scaled(plumb::durations(made.graph), 0.3, 3, random));
    const StepStatistics statistics = step_statistics(test::step_of(made.graph, evaluation), made.schedule.ranks);
    // The graph's bubbles take durations as end − start too.
    const Bubbles expected = bubbles(made.graph, evaluation);
    REQUIRE(statistics.bubble_makespan_fraction == Approx(expected.makespan_fraction));
    REQUIRE(statistics.bubble_span_fraction == Approx(expected.span_fraction));
  }
}

TEST_CASE("a step that lacks an action, or has it twice, is refused") {
  const Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 2, .chunks = 1});
  const StepTimeline step = test::step_of(made.graph, evaluate(made.graph));
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    StepTimeline lacking = step;
    lacking.events.erase(lacking.events.begin() + static_cast<std::ptrdiff_t>(i));
    REQUIRE_THROWS_WITH(measured_durations(made.graph, lacking),
                        ContainsSubstring("has no event of " + to_string(step.events[i].action)));
    StepTimeline doubled = step;
    doubled.events.push_back(step.events[i]);
    REQUIRE_THROWS_WITH(measured_durations(made.graph, doubled),
                        ContainsSubstring(to_string(step.events[i].action) + " twice"));
  }
  REQUIRE_THROWS_AS(replay(made.graph, StepTimeline{}), InputError);
}

// As a run measures them: each rank of a sum over data-parallel ranks has an event of its own.
StepTimeline measured_step(const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Event> events;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const bool transfer = node.kind == NodeKind::transfer;
    Event event{node.action, node.rank, transfer ? node.peer : -1, evaluation.start[id], evaluation.end[id], {}, {}};
    const std::vector<int> alone{node.rank};
    for (const int rank : node.group < 0 ? alone : graph.groups[static_cast<std::size_t>(node.group)]) {
      event.rank = rank;
      events.push_back(event);
    }
  }
  return ordered_step(std::move(events));
}

TEST_CASE("a step of all ranks of a layout replays to itself, whatever each lane takes") {
  std::mt19937_64 random(5);
  for (const int data : {2, 3}) {
    Timeline timeline;
    timeline.schedule = lower(generate_schedule("zb-h1", {.ranks = 3, .microbatches = 5}), {.data_parallel = true});
    timeline.costs = test::some_costs(3);
    timeline.layout = Layout{.pipeline = 3, .tensor = {}, .data = {.degree = data}};
    const ScheduleGraph graph = graph_of(timeline);
    REQUIRE(graph.ranks == 3 * data);
    const std::vector<Seconds> durations = test::scaled(plumb::durations(graph), 0.3, 3, random);
    const StepTimeline step = measured_step(graph, evaluate(graph, durations));
    CHECK(std::abs(replay(graph, step).error_fraction) < 1e-12);
    StepTimeline cut = step;
    std::erase_if(cut.events, [](const Event& event) {
      return event.rank == 1 && event.action.kind == ActionKind::reduce_gradient;
    });
    CHECK_THROWS_WITH(replay(graph, cut), ContainsSubstring("on rank 1"));
  }
}

// Ranks 0 and 1 share one copy, 2 and 3 the other: each rank's event tells of both sums.
TEST_CASE("a step of HSDP replays to itself: what a rank reduces counts once") {
  Timeline timeline;
  timeline.schedule = lower(generate_schedule("1f1b", {.ranks = 1, .microbatches = 3}), {.data_parallel = true});
  timeline.costs = test::some_costs(1);
  timeline.costs.stages.front().gradient_reduction = {50};
  timeline.layout = Layout{
      .pipeline = 1, .tensor = {}, .data = {.degree = 4, .sharding = Sharding::hsdp, .shard = 2, .replicate = 2}};
  const ScheduleGraph graph = graph_of(timeline);
  REQUIRE(graph.ranks == 4);
  std::mt19937_64 random(7);
  StepTimeline step = measured_step(graph, evaluate(graph, test::scaled(plumb::durations(graph), 0.3, 3, random)));
  // As a rank logs it: one event, which ends when the copies have waited for each other.
  std::map<int, Event> reductions;
  for (const Event& event : step.events) {
    if (event.action.kind != ActionKind::reduce_gradient) continue;
    Event& known = reductions.emplace(event.rank, event).first->second;
    known.start = std::min(known.start, event.start);
    known.end = std::max(known.end, event.end);
  }
  std::erase_if(step.events, [](const Event& event) { return event.action.kind == ActionKind::reduce_gradient; });
  for (const auto& [rank, event] : reductions) step.events.push_back(event);
  REQUIRE(reductions.size() == 4);
  CHECK(std::abs(replay(graph, ordered_step(std::move(step.events))).error_fraction) < 1e-12);
}

TEST_CASE("every pipeline instance shares the known times of one") {
  const Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4});
  const Timeline one = test::predicted_of(made);
  const Layout layout{.pipeline = 2, .tensor = {}, .data = {.degree = 2}};
  const Timeline all = of_all_ranks(one, layout);
  CHECK(ranks_of(all) == 4);
  CHECK(all.ranks.size() == 4);
  CHECK(all.steps.front().duration == one.steps.front().duration);
  CHECK(all.steps.front().events.size() == 2 * one.steps.front().events.size());
  // By default data is nested inside the pipeline: lanes are {0, 2} and {1, 3}.
  for (const Event& event : all.steps.front().events) {
    CHECK(pipeline_rank(all, event.rank) == event.rank / 2);
    if (event.peer >= 0) CHECK(event.peer % 2 == event.rank % 2);
  }
  CHECK(of_all_ranks(all, layout) == all);
}

}  // namespace plumb
