#include "common/timeline/diff/diff.hpp"

#include "common/base/error.hpp"
#include "common/timeline/diff/replay.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {
namespace {

using test::Case;

Seconds sum(const TimelineDiff& diff) {
  Seconds total;
  for (const DiffCause& cause : diff.causes) total += cause.seconds;
  return total;
}

bool closes(const TimelineDiff& diff) {
  const double gap = (diff.measured - diff.predicted).value;
  return std::abs(sum(diff).value - gap) <= 1e-9 * std::max(diff.predicted.value, diff.measured.value);
}

const DiffCause* find(const TimelineDiff& diff, const std::string& name) {
  const auto found = std::ranges::find_if(diff.causes, [&](const DiffCause& cause) { return cause.cause == name; });
  return found == diff.causes.end() ? nullptr : &*found;
}

// All seconds but those of `name` are rounding.
void require_only(const TimelineDiff& diff, const std::string& name, Seconds expected) {
  for (const DiffCause& cause : diff.causes) {
    INFO(cause.cause);
    REQUIRE(cause.seconds.value == Approx(cause.cause == name ? expected.value : 0).margin(1e-12));
  }
  REQUIRE(find(diff, name) != nullptr);
}

template <class Belongs>
std::vector<Seconds> slowed(const ScheduleGraph& graph, double factor, const Belongs& belongs) {
  std::vector<Seconds> result = durations(graph);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (belongs(graph.nodes[i])) result[i] = result[i] * factor;
  }
  return result;
}

// A rank's n-th action and the one behind it have changed places.
Case with_swapped(const Case& made, std::size_t rank, std::size_t n, const Schedule& unlowered) {
  Case acted = made;
  acted.schedule = unlowered;
  std::vector<Action>& list = acted.schedule.actions[rank];
  std::swap(list[n], list[n + 1]);
  acted.schedule = lower(acted.schedule, {.optimizer = true});
  acted.graph = build_graph(acted.schedule, acted.costs);
  return acted;
}

}  // namespace

TEST_CASE("two equal timelines differ in nothing") {
  for (const Case& made : test::some_cases()) {
    const TimelineDiff result = diff(test::predicted_of(made), test::measured_of(made, durations(made.graph)));
    REQUIRE(result.predicted == result.measured);
    for (const DiffCause& cause : result.causes) {
      REQUIRE(cause.seconds == Seconds{});
      REQUIRE(cause.actions.empty());
    }
  }
}

TEST_CASE("a slower stage is the one cause, and exactly what the step grew by") {
  int slower = 0;
  for (const Case& made : test::some_cases()) {
    const int stage = stages(made.schedule) - 1;
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward, ActionKind::input_gradient}) {
      const std::vector<Seconds> slow = slowed(
          made.graph, 1.5, [&](const Node& node) { return node.action.kind == kind && node.action.stage == stage; });
      if (slow == durations(made.graph)) continue;  // a schedule without this kind
      const Seconds growth = evaluate(made.graph, slow).makespan - evaluate(made.graph).makespan;
      // Where other ranks are slower still, or two replicas run against each other, the last stage may have time to
      // spare.
      if (growth.value == 0) continue;
      ++slower;
      const TimelineDiff result = diff(test::predicted_of(made), test::measured_of(made, slow));
      const std::string name = "slower " + std::string(letters(kind)) + " of stage " + std::to_string(stage);
      require_only(result, name, growth);
      REQUIRE(closes(result));
      const auto on_rank = [&](int replica) {
        return ContainsSubstring("rank " + std::to_string(rank_in_replica(made.schedule, replica, stage)) + ": " +
                                 std::to_string(stage) + std::string(letters(kind)));
      };
      for (const std::string& action : find(result, name)->actions) {
        REQUIRE_THAT(action, (on_rank(0) || on_rank(replicas(made.schedule) - 1)) && ContainsSubstring("+"));
      }
      REQUIRE_FALSE(find(result, name)->actions.empty());
    }
  }
  CHECK(slower > 90);
}

TEST_CASE("a faster stage counts against the rest") {
  const Case made = test::make_case("1f1b", {.ranks = 4, .microbatches = 8, .chunks = 1});
  const std::vector<Seconds> fast = slowed(made.graph, 0.8, [](const Node& node) {
    return node.action.kind == ActionKind::forward && node.action.stage == 3;
  });
  const Seconds growth = evaluate(made.graph, fast).makespan - evaluate(made.graph).makespan;
  REQUIRE(growth.value < 0);
  require_only(diff(test::predicted_of(made), test::measured_of(made, fast)), "faster F of stage 3", growth);
}

TEST_CASE("slower links, pauses and another order are told apart") {
  std::mt19937_64 random(4);
  for (const Case& made : test::some_cases()) {
    if (made.schedule.ranks == 1) continue;
    const Seconds base = evaluate(made.graph).makespan;
    const std::vector<Seconds> slow_links =
        slowed(made.graph, 20, [](const Node& node) { return node.kind == NodeKind::transfer; });
    require_only(diff(test::predicted_of(made), test::measured_of(made, slow_links)), "transfers",
                 evaluate(made.graph, slow_links).makespan - base);

    const std::vector<Seconds> gaps = test::random_gaps(made.graph.nodes.size(), 1e-4, random);
    require_only(diff(test::predicted_of(made), test::measured_of(made, durations(made.graph), gaps)), "host gaps",
                 evaluate(made.graph, durations(made.graph), gaps).makespan - base);
  }
}

TEST_CASE("ranks that act in another order than planned are found") {
  const Case planned = test::make_case("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1});
  const Case acted = test::make_case("gpipe", {.ranks = 3, .microbatches = 6, .chunks = 1});
  Timeline measured = test::measured_of(acted, durations(acted.graph));
  measured.schedule = planned.schedule;
  const TimelineDiff result = diff(test::predicted_of(planned), measured);
  require_only(result, "order", evaluate(acted.graph).makespan - evaluate(planned.graph).makespan);
  // Rank 0 warms up with three forwards, then GPipe goes on with a fourth; rank 2 has no warm-up but one.
  REQUIRE(find(result, "order")->actions == std::vector<std::string>{"rank 0: 0F3 ran where 0B0 was planned",
                                                                     "rank 1: 1F2 ran where 1B0 was planned",
                                                                     "rank 2: 2F1 ran where 2B0 was planned"});
}

TEST_CASE("another order is found where weights are updated within the batch, and no update is lost") {
  const ScheduleShape shape{.ranks = 3, .microbatches = 9, .chunks = 1, .update_every = 3};
  const Case planned = test::make_case("pipedream-2bw", shape);
  const Schedule unlowered = generate_schedule("pipedream-2bw", shape);
  // Rank 0 warms up with two forwards; its third and its first backward change places.
  const std::vector<Action>& list = unlowered.actions[0];
  REQUIRE(list[2].kind == ActionKind::forward);
  REQUIRE(list[3].kind == ActionKind::backward);
  const Case acted = with_swapped(planned, 0, 2, unlowered);
  const Seconds grown = evaluate(acted.graph).makespan - evaluate(planned.graph).makespan;
  REQUIRE(grown > Seconds{});
  Timeline measured = test::measured_of(acted, durations(acted.graph));
  measured.schedule = planned.schedule;
  const TimelineDiff result = diff(test::predicted_of(planned), measured);
  require_only(result, "order", grown);
  REQUIRE(find(result, "order")->actions == std::vector<std::string>{"rank 0: 0B0 ran where 0F2 was planned"});
}

// What makes a step longer stands on the longest path that it makes; what makes it shorter, on the one that it ends.
TEST_CASE("the first action that is named is on the path that tells, where any that changed is") {
  std::mt19937_64 random(7);
  int longer = 0;
  int shorter = 0;
  for (const Case& made : test::some_cases()) {
    std::vector<NodeId> transfers;
    for (NodeId id = 0; id < made.graph.nodes.size(); ++id) {
      if (made.graph.nodes[id].kind == NodeKind::transfer) transfers.push_back(id);
    }
    if (transfers.size() < 6) continue;
    const auto texts_on = [&](const std::vector<NodeId>& path) {
      std::vector<std::string> texts;
      for (const NodeId id : path) {
        const Node& node = made.graph.nodes[id];
        if (node.kind != NodeKind::transfer) continue;
        texts.push_back("rank " + std::to_string(node.rank) + ": " + to_string(node.action) + " ");
      }
      return texts;
    };
    const auto stands_in = [](const std::string& action, const std::vector<std::string>& texts) {
      return std::ranges::any_of(texts, [&](const std::string& text) { return action.starts_with(text); });
    };
    for (int round = 0; round < 10; ++round) {
      // Without ties. One message becomes much slower, the others a little: mostly another path than before.
      const std::vector<Seconds> fast = test::scaled(durations(made.graph), 0.9, 1.1, random);
      std::vector<Seconds> slow = fast;
      for (const NodeId id : transfers) slow[id] = slow[id] * std::uniform_real_distribution<double>(1.2, 1.8)(random);
      const NodeId much = transfers[std::uniform_int_distribution<std::size_t>(0, transfers.size() - 1)(random)];
      slow[much] = slow[much] * 200;
      const std::vector<std::string> on_fast = texts_on(critical_path(made.graph, evaluate(made.graph, fast)));
      const std::vector<std::string> on_slow = texts_on(critical_path(made.graph, evaluate(made.graph, slow)));
      if (on_slow.empty()) continue;
      const auto transfers_between = [&](const std::vector<Seconds>& before, const std::vector<Seconds>& after) {
        const Timeline predicted = test::timeline_of(made, TimelineSource::predicted, evaluate(made.graph, before));
        return *find(diff(predicted, test::measured_of(made, after)), "transfers");
      };
      CAPTURE(made.schedule.name, round);
      for (const bool grows : {true, false}) {
        const DiffCause cause = grows ? transfers_between(fast, slow) : transfers_between(slow, fast);
        REQUIRE(grows == (cause.seconds > Seconds{}));
        REQUIRE_FALSE(cause.actions.empty());
        CHECK(stands_in(cause.actions.front(), on_slow));
        (grows ? longer : shorter) += stands_in(cause.actions.front(), on_fast) ? 0 : 1;
      }
    }
  }
  CHECK(longer > 20);  // where the other path would name another
  CHECK(shorter > 20);
}

TEST_CASE("a rank that is slower in everything is called a straggler") {
  for (const Case& made : test::some_cases()) {
    if (made.schedule.ranks < 4) continue;
    const auto all_of_rank_2 = [](const Node& node) { return node.kind == NodeKind::compute && node.rank == 2; };
    const std::vector<Seconds> slow = slowed(made.graph, 1.25, all_of_rank_2);
    const TimelineDiff result = diff(test::predicted_of(made), test::measured_of(made, slow));
    REQUIRE(closes(result));
    int named = 0;
    for (const DiffCause& cause : result.causes) {
      if (cause.cause.find("straggler") == std::string::npos) continue;
      ++named;
      REQUIRE_THAT(cause.cause, ContainsSubstring("straggler: rank 2 takes 1.25 times as long in all it computes"));
    }
    REQUIRE(named >= 2);
  }
  // One slow kernel makes no straggler, nor does a machine that is slower everywhere.
  const Case made = test::make_case("1f1b", {.ranks = 4, .microbatches = 8, .chunks = 1});
  const auto names_one = [&](const std::vector<Seconds>& measured) {
    const TimelineDiff result = diff(test::predicted_of(made), test::measured_of(made, measured));
    return std::ranges::any_of(
        result.causes, [](const DiffCause& cause) { return cause.cause.find("straggler") != std::string::npos; });
  };
  REQUIRE_FALSE(names_one(slowed(
      made.graph, 1.6, [](const Node& node) { return node.rank == 2 && node.action.kind == ActionKind::forward; })));
  REQUIRE_FALSE(names_one(slowed(made.graph, 1.6, [](const Node&) { return true; })));
  // Nor does a prediction that is wrong about all ranks, about one most of all.
  std::vector<Seconds> all_slow = slowed(made.graph, 3, [](const Node&) { return true; });
  for (std::size_t i = 0; i < all_slow.size(); ++i) {
    if (made.graph.nodes[i].rank == 2) all_slow[i] = all_slow[i] * 1.5;
  }
  REQUIRE_FALSE(names_one(all_slow));
}

TEST_CASE("the slower of two ranks is the straggler") {
  const Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  const std::vector<Seconds> slow =
      slowed(made.graph, 1.25, [](const Node& node) { return node.kind == NodeKind::compute && node.rank == 1; });
  const TimelineDiff result = diff(test::predicted_of(made), test::measured_of(made, slow));
  REQUIRE(std::ranges::any_of(result.causes, [](const DiffCause& cause) {
    return cause.cause.find("straggler: rank 1 takes 1.25 times as long") != std::string::npos;
  }));
}

// No pause makes a step shorter: where the clocks of two ranks say so, it is the clocks.
TEST_CASE("a pause that seems below zero is left to the residual") {
  const Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  Timeline measured = test::measured_of(made, durations(made.graph));
  const Seconds behind{2e-4};  // more than a message takes
  for (Event& event : measured.steps[0].events) {
    if (event.rank != 0) continue;
    event.start -= behind;
    event.end -= behind;
  }
  measured.steps[0] = ordered_step(measured.steps[0].events);
  const TimelineDiff result = diff(test::predicted_of(made), measured);
  REQUIRE(closes(result));
  REQUIRE(find(result, "host gaps")->seconds >= Seconds{});
  REQUIRE(find(result, "residual")->seconds < Seconds{});
}

TEST_CASE("messages between hosts that together differ by less than their clocks agree are no finding") {
  const Case made = test::make_case("1f1b", {.ranks = 4, .microbatches = 8, .chunks = 1});
  const Seconds longer{3e-5};
  const auto measured_with = [&](int first, int second, Seconds uncertainty) {
    std::vector<Seconds> slow = durations(made.graph);
    for (std::size_t i = 0; i < slow.size(); ++i) {
      const Node& node = made.graph.nodes[i];
      const bool between = std::min(node.rank, node.peer) == first && std::max(node.rank, node.peer) == second;
      if (between) slow[i] += longer;
    }
    Timeline measured = test::measured_of(made, slow);
    measured.clock_uncertainty = uncertainty;
    measured.clock_of_rank = {0, 0, 1, 1};
    return measured;
  };
  const Timeline predicted = test::predicted_of(made);
  // Each forward and each backward of a microbatch crosses once: the step grows by both ways of the first and the last.
  const auto grown = [&](const Timeline& measured) {
    return median_step(measured).duration - predicted.steps[0].duration;
  };

  const Seconds both_ways = grown(measured_with(1, 2, {5e-5}));
  REQUIRE(both_ways >= 2 * longer);
  const Timeline uncertain = measured_with(1, 2, both_ways * 1.01);
  const TimelineDiff result = diff(predicted, uncertain);
  CHECK(result.clock_uncertainty == both_ways * 1.01);
  require_only(result, clocks_cause, both_ways);
  CHECK(find(result, clocks_cause)->within_clocks);
  CHECK(find(result, clocks_cause)->actions.empty());
  CHECK(closes(result));

  // Each is still less than the clocks, and together they are more: clocks that are apart would cancel on the way back.
  for (const Seconds uncertainty : {both_ways * 0.99, longer * 1.01}) {
    const TimelineDiff slower = diff(predicted, measured_with(1, 2, uncertainty));
    require_only(slower, between_hosts_cause, both_ways);
    CHECK_FALSE(find(slower, between_hosts_cause)->within_clocks);
    CHECK(find(slower, clocks_cause) == nullptr);
    CHECK(closes(slower));
  }

  // More than the clocks, of one host, or on one clock: a finding.
  for (const Timeline& sure : {measured_with(1, 2, {2e-5}), measured_with(0, 1, {5e-5}), measured_with(2, 3, {5e-5}),
                               measured_with(1, 2, {0})}) {
    require_only(diff(predicted, sure), "transfers", grown(sure));
    CHECK_FALSE(find(diff(predicted, sure), "transfers")->within_clocks);
    CHECK_FALSE(find(diff(predicted, sure), "transfers")->actions.empty());
  }
  // Who does not know which ranks share a clock takes none to.
  Timeline unknown = measured_with(0, 1, both_ways * 1.01);
  unknown.clock_of_rank.clear();
  require_only(diff(predicted, unknown), clocks_cause, grown(unknown));
}

TEST_CASE("a clock that is off by less than is said makes no cause, and hides none of one rank's own") {
  const Seconds off{4e-5};
  for (const Case& made : test::some_cases()) {
    if (made.schedule.ranks < 2 || evicts(made.schedule)) continue;
    const int last = stages(made.schedule) - 1;
    const std::vector<Seconds> slow = slowed(
        made.graph, 1.5, [&](const Node& node) { return node.kind == NodeKind::compute && node.action.stage == last; });
    Timeline measured = test::measured_of(made, slow);
    const TimelineDiff one_clock = diff(test::predicted_of(made), measured);
    for (int rank = 0; rank < made.schedule.ranks; ++rank) measured.clock_of_rank.push_back(rank % 2);
    measured.clock_uncertainty = {5e-5};
    for (Event& event : measured.steps[0].events) {
      // As plumb-exec puts a message together: begun on the sender's clock, ended on the receiver's, never before.
      if ((event.peer >= 0 ? event.peer : event.rank) % 2 == 1) event.start += off;
      if (event.rank % 2 == 1) event.end += off;
      event.end = std::max(event.end, event.start);
    }
    measured.steps[0] = ordered_step(measured.steps[0].events);
    const TimelineDiff result = diff(test::predicted_of(made), measured);
    CHECK(closes(result));
    for (const DiffCause& cause : result.causes) {
      INFO(made.schedule.name << ": " << cause.cause);
      if (cause.within_clocks) {
        CHECK(cause.actions.empty());
        continue;
      }
      const DiffCause* before = find(one_clock, cause.cause);
      REQUIRE(before != nullptr);
      CHECK(cause.seconds.value == Approx(before->seconds.value).margin(1e-9));
    }
  }
}

TEST_CASE("the causes add up for every kind of difference") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    for (const Case& made : test::some_cases()) {
      const std::vector<Seconds> measured_durations = test::scaled(durations(made.graph), 0.5, 2, random);
      const std::vector<Seconds> gaps = test::random_gaps(made.graph.nodes.size(), 3e-4, random);
      Timeline measured = test::measured_of(made, measured_durations, gaps);
      TimelineDiff result = diff(test::predicted_of(made), measured);
      REQUIRE(closes(result));
      REQUIRE(find(result, "residual")->seconds.value == Approx(0).margin(1e-12));
      REQUIRE(result.replay.value == Approx(evaluate(made.graph, measured_durations).makespan.value));
      REQUIRE(result.causes.back().cause == "residual");

      // One rank's clock is off by more than a message takes: still a sum that closes.
      for (Event& event : measured.steps[0].events) {
        if (event.rank != 0) continue;
        event.start += Seconds{2e-4};
        event.end += Seconds{2e-4};
      }
      measured.steps[0] = ordered_step(measured.steps[0].events);
      result = diff(test::predicted_of(made), measured);
      REQUIRE(closes(result));
    }
  }
}

TEST_CASE("a prediction with contention is the baseline as it is") {
  // Predicted durations and pauses from elsewhere than the costs, as SimGrid has them where ranks share a core.
  std::mt19937_64 random(6);
  const Case made = test::make_case("zb-h1", {.ranks = 4, .microbatches = 8, .chunks = 1});
  const std::vector<Seconds> contended = test::scaled(durations(made.graph), 1, 3, random);
  const std::vector<Seconds> gaps = test::random_gaps(made.graph.nodes.size(), 1e-4, random);
  const Timeline predicted = test::timeline_of(made, TimelineSource::predicted, evaluate(made.graph, contended, gaps));
  for (const DiffCause& cause : diff(predicted, test::measured_of(made, contended, gaps)).causes) {
    REQUIRE(cause.seconds.value == Approx(0).margin(1e-12));
  }
}

TEST_CASE("the median step is compared") {
  const Case made = test::make_case("gpipe", {.ranks = 2, .microbatches = 3, .chunks = 1});
  Timeline measured = test::measured_of(made, slowed(made.graph, 9, [](const Node&) { return true; }));
  measured.steps.push_back(test::step_of(made.graph, evaluate(made.graph)));
  const TimelineDiff result = diff(test::predicted_of(made), measured);
  REQUIRE(result.measured == result.predicted);
}

TEST_CASE("timelines of two plans, or in the wrong order, are refused") {
  const Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  const Timeline predicted = test::predicted_of(made);
  Timeline measured = test::measured_of(made, durations(made.graph));
  REQUIRE_THROWS_WITH(diff(measured, predicted), ContainsSubstring("name the prediction first"));
  measured.plan_digest = "ffffffffffffffff";
  REQUIRE_THROWS_WITH(diff(predicted, measured), ContainsSubstring("not of the same plan"));
  const Case other = test::make_case("gpipe", {.ranks = 2, .microbatches = 4, .chunks = 1});
  REQUIRE_THROWS_AS(diff(predicted, test::measured_of(other, durations(other.graph))), InputError);
  measured = test::measured_of(made, durations(made.graph));
  measured.steps.clear();
  REQUIRE_THROWS_AS(diff(predicted, measured), InputError);
}

// Predicted of one pipeline, measured of two: the second lane computes twice as long.
TEST_CASE("a straggler in a run of all ranks is named by its own rank, and the sum closes") {
  Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4});
  made.schedule = lower(without_messages(made.schedule), {.data_parallel = true});
  for (ComputeCost& cost : made.costs.stages) cost.gradient_reduction = {1e-3};
  made.graph = build_graph(made.schedule, made.costs);
  const Timeline predicted = test::predicted_of(made);
  Timeline measured = of_all_ranks(predicted, {.pipeline = 2, .tensor = {}, .data = {.degree = 2}});
  measured.source = TimelineSource::measured;
  CHECK(diff(predicted, measured).measured == predicted.steps.front().duration);

  const ScheduleGraph graph = graph_of(measured);
  const std::vector<Seconds> slow =
      slowed(graph, 1.5, [](const Node& node) { return node.rank == 3 && node.kind == NodeKind::compute; });
  const Evaluation evaluation = evaluate(graph, slow);
  std::vector<Event> events;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    Event event{node.action, node.rank, node.peer, evaluation.start[id], evaluation.end[id], {}, {}};
    const std::vector<int> alone{node.rank};
    for (const int rank : node.group < 0 ? alone : graph.groups[static_cast<std::size_t>(node.group)]) {
      event.rank = rank;
      events.push_back(event);
    }
  }
  measured.steps = {ordered_step(std::move(events))};
  const TimelineDiff result = diff(predicted, measured);
  CHECK(closes(result));
  CHECK(result.replay.value == Approx(result.measured.value));
  CHECK(std::ranges::any_of(result.causes, [](const DiffCause& cause) {
    return cause.cause.find("of stage 1 (straggler: rank 3 takes 1.50 times") != std::string::npos;
  }));
}

}  // namespace plumb
