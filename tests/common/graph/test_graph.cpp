#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"

#include <algorithm>
#include <map>
#include <random>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"
#include "tests/common/schedule/random_schedule.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

std::string name_of(const ScheduleGraph& graph, NodeId node) { return to_string(graph.nodes[node].action); }

std::vector<std::string> edges_of(const ScheduleGraph& graph) {
  std::vector<std::string> edges;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (const NodeId next : successors(graph, node))
      edges.push_back(name_of(graph, node) + ">" + name_of(graph, next));
  }
  return edges;
}

ScheduleGraph graph_of(const char* name, ScheduleShape shape, const LoweringOptions& options = {}) {
  const Schedule schedule = lower(generate_schedule(name, shape), options);
  return build_graph(
      schedule,
      even_costs(stages(schedule),
                 {.forward = {4}, .input_gradient = {4}, .weight_gradient = {2}, .hop = {1}, .chunks = shape.chunks}));
}

}  // namespace

TEST_CASE("nodes and edges of one microbatch through two ranks, tied") {
  const ScheduleGraph graph = graph_of("1f1b", {.ranks = 2, .microbatches = 1}, {.tied_embeddings = true});
  CHECK(edges_of(graph) == std::vector<std::string>{"0F0>0B0", "0F0>1RECV_F0", "0RECV_B0>0B0", "0B0>0REDUCE_TIED",
                                                    "0B0>0STEP", "0REDUCE_TIED>0STEP", "0REDUCE_TIED>1STEP",
                                                    "1RECV_F0>1F0", "1F0>1B0", "1B0>0RECV_B0", "1B0>0REDUCE_TIED",
                                                    "1B0>1STEP"});
  CHECK(graph.nodes[1].kind == NodeKind::transfer);
  CHECK(graph.nodes[1].peer == 1);
  CHECK(graph.nodes[3].kind == NodeKind::collective);
  CHECK(graph.nodes[3].peer == 1);
  CHECK(graph.rank_order[0].size() == 3);
}

// As a rank's list has them: the optimizer has both sums, however long the first of them takes.
TEST_CASE("a stage's sums of gradients follow each other, and its optimizer step them all") {
  const Schedule schedule = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 1}),
                                  {.data_parallel = true, .tied_embeddings = true});
  PipelineCosts costs = even_costs(2, {.forward = {4}, .input_gradient = {4}, .weight_gradient = {2}, .hop = {1}});
  costs.tied_bytes = {1 << 20};
  costs.inside = {.latency = {1}, .bandwidth = {1 << 10}};
  for (ComputeCost& cost : costs.stages) cost.gradient_reduction = {3};
  const ScheduleGraph graph = build_graph(schedule, costs);
  const std::vector<std::string> edges = edges_of(graph);
  for (const char* const edge :
       {"0REDUCE_TIED>0REDUCE_GRAD", "0REDUCE_TIED>1REDUCE_GRAD", "0REDUCE_GRAD>0STEP", "1REDUCE_GRAD>1STEP"}) {
    INFO(edge);
    CHECK(std::ranges::count(edges, edge) == 1);
  }
  const Evaluation when = evaluate(graph);
  const auto starts_of = [&](const char* name) {
    for (NodeId node = 0; node < graph.nodes.size(); ++node) {
      if (name_of(graph, node) == name) return when.start[node].value;
    }
    return -1.0;
  };
  const double tied = 1 + (1 << 20) / double{1 << 10};
  CHECK(starts_of("0STEP") == Approx(starts_of("0REDUCE_TIED") + tied + 3));
}

TEST_CASE("a boundary within a rank is an edge, not a transfer") {
  const ScheduleGraph graph = graph_of("interleaved-1f1b", {.ranks = 1, .microbatches = 2, .chunks = 2});
  CHECK(std::ranges::none_of(graph.nodes, [](const Node& node) { return node.kind == NodeKind::transfer; }));
  const auto edges = edges_of(graph);
  CHECK(std::ranges::count(edges, "0F0>1F0") == 1);
  CHECK(std::ranges::count(edges, "1B0>0B0") == 1);
}

TEST_CASE("transfers take the way inside a machine or between machines, by latency and bytes") {
  const Schedule schedule = lower(generate_schedule("gpipe", {.ranks = 4, .microbatches = 1}), {});
  PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  costs.boundary_bytes = {100};
  costs.inside = {.latency = {0.5}, .bandwidth = {100}};
  costs.outside = {.latency = {2}, .bandwidth = {50}};
  costs.ranks_per_machine = 2;
  for (const Node& node : build_graph(schedule, costs).nodes) {
    if (node.kind != NodeKind::transfer) continue;
    CHECK(node.bytes.value == 100);
    CHECK(node.duration.value == (node.rank / 2 == node.peer / 2 ? 1.5 : 4.0));
  }
}

TEST_CASE("BPipe: LOAD waits for its EVICT and for what stands before both its halves, the backward waits for LOAD") {
  // 0F2 0EVICT2 0F3 … 0B1 0LOAD2 … 0B2 on rank 0; 0EVICT2 3F0 … 3B1 0LOAD2 on rank 3.
  PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  costs.boundary_bytes = {100};
  costs.inside = {.latency = {0.5}, .bandwidth = {100}};
  for (ComputeCost& stage : costs.stages) stage.kept_bytes = {300};
  const ScheduleGraph graph =
      build_graph(lower(generate_schedule("bpipe", {.ranks = 4, .microbatches = 6}), {}), costs);
  std::vector<std::string> found;
  for (const std::string& edge : edges_of(graph)) {
    if (edge.find("EVICT") != std::string::npos || edge.find("LOAD") != std::string::npos) found.push_back(edge);
  }
  std::ranges::sort(found);
  CHECK(found == std::vector<std::string>{"0B1>0LOAD2", "0B3>0LOAD4", "0EVICT2>0LOAD2", "0EVICT4>0LOAD4", "0F2>0EVICT2",
                                          "0F4>0EVICT4", "0LOAD2>0B2", "0LOAD4>0B4", "3B1>0LOAD2", "3B3>0LOAD4"});
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::host_copy) continue;
    const bool evicts = node.action.kind == ActionKind::evict;
    CHECK(node.rank == (evicts ? 3 : 0));  // the receiver
    CHECK(node.peer == (evicts ? 0 : 3));
    CHECK(node.bytes.value == 300);
    CHECK(node.duration.value == 3.5);
  }
}

TEST_CASE("a sum of replicas carries its stage's gradients to the other copy's rank, and its STEP waits for it") {
  const Schedule schedule = lower(generate_schedule("chimera", {.ranks = 4, .microbatches = 4}), {});
  PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  costs.tied_bytes = {7777};
  for (std::size_t s = 0; s < 4; ++s) costs.stages[s].gradient_bytes = {100 * (static_cast<int>(s) + 1)};
  const ScheduleGraph graph = build_graph(schedule, costs);
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::collective) continue;
    CHECK(node.bytes.value == 100 * (node.action.stage + 1));
    CHECK(node.rank == node.action.stage);
    CHECK(node.peer == 3 - node.action.stage);
  }
  const auto edges = edges_of(graph);
  for (const char* edge : {"0REDUCE_GRAD>0STEP", "1REDUCE_GRAD>1STEP", "2REDUCE_GRAD>2STEP", "3REDUCE_GRAD>3STEP"}) {
    CHECK(std::ranges::count(edges, edge) == 2);  // on both ranks
  }
  const Schedule tied = lower(generate_schedule("1f1b", {.ranks = 4, .microbatches = 4}), {.tied_embeddings = true});
  for (const Node& node : build_graph(tied, costs).nodes) {
    if (node.kind == NodeKind::collective) CHECK(node.bytes.value == 7777);
  }
}

TEST_CASE("durations follow kind and stage, and a recompute costs a forward") {
  const Schedule schedule =
      lower(with_recompute(generate_schedule("zb-h1", {.ranks = 2, .microbatches = 1}), {true, false}), {});
  PipelineCosts costs = even_costs(2, {.forward = {3}, .input_gradient = {5}, .weight_gradient = {7}});
  costs.stages[1].optimizer = {11};
  const ScheduleGraph graph = build_graph(schedule, costs);
  std::map<std::string, double> seconds;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) seconds[name_of(graph, node)] = durations(graph)[node].value;
  CHECK(seconds["0F0"] == 3);
  CHECK(seconds["0R0"] == 3);
  CHECK(seconds["0I0"] == 5);
  CHECK(seconds["0W0"] == 7);
  CHECK(seconds["0STEP"] == 0);
  CHECK(seconds["1STEP"] == 11);
}

TEST_CASE("the longest path is what a naive run takes, for random schedules and hops") {
  std::mt19937 random(8);
  for (int round = 0; round < plumb::testing::cases(300); ++round) {
    const Schedule schedule = random_schedule(random);
    NaiveTimes times{.forward = {}, .input_gradient = {}, .weight_gradient = {}, .hop = static_cast<int>(random() % 6)};
    PipelineCosts costs = even_costs(stages(schedule), {.hop = {static_cast<double>(times.hop)}});
    for (ComputeCost& stage : costs.stages) {
      for (auto& [ticks, seconds] : {std::pair{&times.forward, &stage.forward},
                                     {&times.input_gradient, &stage.input_gradient},
                                     {&times.weight_gradient, &stage.weight_gradient}}) {
        ticks->push_back(static_cast<int>(random() % 9));
        seconds->value = ticks->back();
      }
    }
    const ScheduleGraph graph = build_graph(lower(schedule, {}), costs);
    const Evaluation evaluation = evaluate(graph);
    const NaiveResult naive = naive_run(schedule, times);
    CAPTURE(round);
    CHECK(evaluation.makespan.value == naive.makespan);
    const Bubbles found = bubbles(graph, evaluation);
    CHECK(naive.longest_span - (evaluation.makespan - found.makespan).value == Approx(found.span.value).margin(1e-9));
  }
}

TEST_CASE("the topological order respects every edge and is the smallest by id") {
  const ScheduleGraph graph = graph_of("zb-h1", {.ranks = 4, .microbatches = 7}, {.tied_embeddings = true});
  std::vector<std::size_t> place(graph.nodes.size());
  for (std::size_t i = 0; i < place.size(); ++i) place[graph.topological_order[i]] = i;
  std::vector<NodeId> predecessors(graph.nodes.size(), 0);
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (const NodeId next : successors(graph, node)) {
      CHECK(place[node] < place[next]);
      ++predecessors[next];
    }
  }
  CHECK(predecessors == graph.predecessor_count);
  // Rank 0's warm-up has the smallest ids and waits for nothing.
  CHECK(name_of(graph, graph.topological_order[0]) == "0F0");
  CHECK(name_of(graph, graph.topological_order[3]) == "0F3");
}

TEST_CASE("the critical path is a chain without gaps from 0 to the makespan") {
  std::mt19937 random(9);
  for (int round = 0; round < plumb::testing::cases(100); ++round) {
    const Schedule schedule = lower(random_schedule(random), {});
    const ScheduleGraph graph = build_graph(
        schedule,
        even_costs(stages(schedule), {.forward = {3}, .input_gradient = {4}, .weight_gradient = {2}, .hop = {1}}));
    const Evaluation evaluation = evaluate(graph);
    const std::vector<NodeId> path = critical_path(graph, evaluation);
    REQUIRE(!path.empty());
    CHECK(evaluation.start[path.front()].value == 0);
    CHECK(evaluation.end[path.back()] == evaluation.makespan);
    for (std::size_t i = 1; i < path.size(); ++i) {
      CHECK(evaluation.end[path[i - 1]] == evaluation.start[path[i]]);
      const auto next = successors(graph, path[i - 1]);
      CHECK(std::find(next.begin(), next.end(), path[i]) != next.end());
    }
  }
}

TEST_CASE("given durations and gaps replace the predicted ones") {
  const ScheduleGraph graph = graph_of("1f1b", {.ranks = 1, .microbatches = 2});
  std::vector<Seconds> given(graph.nodes.size(), Seconds{2});
  CHECK(evaluate(graph, given).makespan.value == 2 * 5);
  std::vector<Seconds> gaps(graph.nodes.size(), Seconds{0.5});
  const Evaluation evaluation = evaluate(graph, given, gaps);
  CHECK(evaluation.makespan.value == 2.5 * 5);
  CHECK(evaluation.start[1].value == 3);
  CHECK(evaluate(graph, durations(graph)).makespan == evaluate(graph).makespan);
  given.pop_back();
  CHECK_THROWS_AS(evaluate(graph, given), InputError);
}

TEST_CASE("bubbles: makespan and span, as fractions too") {
  const ScheduleGraph graph = graph_of("1f1b", {.ranks = 2, .microbatches = 4});
  const Evaluation evaluation = evaluate(graph);
  const Bubbles found = bubbles(graph, evaluation);
  CHECK(found.makespan.value == 10 + 2 * (4 / 2));  // (p−1)(F+B) and the exposed hops of the closed form
  CHECK(found.makespan_fraction == Approx(14.0 / 54));
  CHECK(found.span == found.makespan);  // rank 0 begins first and ends last
}

TEST_CASE("impossible graphs are refused: not lowered, costs of another size, a cycle") {
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  CHECK_THROWS_WITH(build_graph(schedule, costs), ContainsSubstring("lower the schedule first"));
  CHECK_THROWS_WITH(
      build_graph(lower(schedule, {}), even_costs(3, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}})),
      ContainsSubstring("2 stages, but costs for 3"));
  Schedule stuck = schedule;
  stuck.actions = {parse_actions("0F0 0B0 0F1 0B1"), parse_actions("1F1 1B1 1F0 1B0")};
  CHECK_THROWS_WITH(build_graph(lower(stuck, {}), costs), ContainsSubstring("deadlock"));
  Schedule foreign = lower(schedule, {});
  foreign.actions[0].push_back(parse_action("0RESHARD"));
  CHECK_THROWS_WITH(build_graph(foreign, costs), ContainsSubstring("is not supported yet"));
  Schedule half = lower(schedule, {.tied_embeddings = true});
  std::erase(half.actions[0], parse_action("0REDUCE_TIED"));
  CHECK_THROWS_AS(build_graph(half, costs), InputError);
}

// Evidence in arXiv 2401.10241, table 4: 34.3 ms per microbatch more, of which 33.4 are work.
TEST_CASE("synchronous exchanges cost 1F1B two transfers for every microbatch more") {
  const auto makespan = [](int microbatches, PipelineExchange exchange) {
    const Schedule schedule = generate_schedule("1f1b", {.ranks = 4, .microbatches = microbatches});
    PipelineCosts costs = even_costs(4, {.forward = {10}, .input_gradient = {10}, .weight_gradient = {10}, .hop = {1}});
    costs.exchange = exchange;
    return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
  };
  for (const int m : {8, 16, 33}) {
    CHECK(makespan(m, PipelineExchange::asynchronous) < makespan(m, PipelineExchange::synchronous));
    CHECK(makespan(m + 1, PipelineExchange::synchronous) - makespan(m, PipelineExchange::synchronous) == 32);
  }
}

// The batch after a steady (F, B) has two sends and two receives of each rank: over one port they take turns.
TEST_CASE("synchronous interleaved pairs expose four transfer times a pair, two where the port is not shared") {
  const auto slope = [](int ranks_per_machine) {
    const auto makespan = [&](int microbatches) {
      const Schedule schedule =
          generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = microbatches, .chunks = 2});
      PipelineCosts costs =
          even_costs(8, {.forward = {10}, .input_gradient = {10}, .weight_gradient = {10}, .hop = {1}});
      costs.exchange = PipelineExchange::synchronous;
      costs.ranks_per_machine = ranks_per_machine;
      return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
    };
    return (makespan(32) - makespan(16)) / 16;
  };
  CHECK(slope(4) == Approx(2 * (30 + 2)));
  CHECK(slope(1) == Approx(2 * (30 + 2)));
  // Of two machines' ranks each has one neighbour on the other machine.
  CHECK(slope(2) == Approx(2 * (30 + 1)));
}

// By hand: three ranks of two stages. In the sixth exchange rank 1 takes in 3F2 from rank 0 and 5B0 from rank 2, each
// the only message of its sender; in the seventh it sends 4F2 and 4B0, each the only one of its receiver.
TEST_CASE("a message takes as many turns as the busier of its two ports has messages") {
  const Schedule schedule =
      lower(generate_schedule("interleaved-1f1b", {.ranks = 3, .microbatches = 6, .chunks = 2}), {});
  PipelineCosts costs =
      even_costs(6, {.forward = {10}, .input_gradient = {10}, .weight_gradient = {10}, .hop = {1}, .chunks = 2});
  costs.exchange = PipelineExchange::synchronous;
  costs.ranks_per_machine = 1;
  const ScheduleGraph graph = build_graph(schedule, costs);
  std::map<std::string, double> turns;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) turns[name_of(graph, node)] = durations(graph)[node].value;
  for (const char* alone : {"1RECV_F0", "2RECV_F0", "3RECV_F0", "4RECV_F0", "4RECV_F1", "5RECV_F0"}) {
    CAPTURE(alone);
    CHECK(turns.at(alone) == 1);
  }
  for (const char* shared : {"4RECV_F2", "4RECV_B0", "5RECV_F2", "3RECV_B0"}) {
    CAPTURE(shared);
    CHECK(turns.at(shared) == 2);
  }
}

// A system redoes the forward inside its backward: one step, before which the gradient is there.
TEST_CASE("with synchronous exchanges a recompute is part of its backward's step") {
  const auto makespan = [](const std::string& name, int chunks, double input, bool recompute) {
    const ScheduleShape shape{.ranks = 4, .microbatches = 8, .chunks = chunks};
    Schedule schedule = generate_schedule(name, shape);
    if (recompute) schedule = with_recompute(std::move(schedule));
    PipelineCosts costs =
        even_costs(4 * chunks,
                   {.forward = {10}, .input_gradient = {input}, .weight_gradient = {10}, .hop = {1}, .chunks = chunks});
    costs.exchange = PipelineExchange::synchronous;
    return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
  };
  for (const auto& [name, chunks] : {std::pair{"1f1b", 1},
                                     {"gpipe", 1},
                                     {"pipedream", 1},
                                     {"chimera", 1},
                                     {"interleaved-1f1b", 2},
                                     {"breadth-first", 2}}) {
    CAPTURE(name);
    CHECK(makespan(name, chunks, 10, true) == Approx(makespan(name, chunks, 20, false)));
  }
}

// All ranks keep in step: rank r runs its step k from (k + r)(F + c) on, and so back again.
TEST_CASE("breadth-first ranks receive early what others send, and never wait for each other in a circle") {
  for (const int microbatches : {4, 5, 6, 7, 8, 13}) {
    CAPTURE(microbatches);
    const Schedule schedule =
        generate_schedule("breadth-first", {.ranks = 4, .microbatches = microbatches, .chunks = 2});
    PipelineCosts costs =
        even_costs(8, {.forward = {6}, .input_gradient = {10}, .weight_gradient = {4}, .hop = {0.5}, .chunks = 2});
    costs.exchange = PipelineExchange::synchronous;
    const double steps = 2 * microbatches + 4 - 2;
    CHECK(evaluate(build_graph(lower(schedule, {}), costs)).makespan.value ==
          Approx(steps * 3.5 + 3 + steps * 7.5 + 7));
  }
}

// Of these some are fewer than the ranks, one group, or no multiple of the ranks.
TEST_CASE("interleaved ranks exchange any number of microbatches synchronously that goes in groups") {
  for (const int microbatches : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16}) {
    CAPTURE(microbatches);
    const auto makespan = [&](PipelineExchange exchange) {
      const Schedule schedule =
          generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = microbatches, .chunks = 2});
      PipelineCosts costs =
          even_costs(8, {.forward = {6}, .input_gradient = {10}, .weight_gradient = {4}, .hop = {0.5}, .chunks = 2});
      costs.exchange = exchange;
      return evaluate(build_graph(lower(schedule, {}), costs)).makespan;
    };
    CHECK(makespan(PipelineExchange::synchronous) >= makespan(PipelineExchange::asynchronous));
  }
}

// Rank 0 sends 0F1 only behind 2B0, with which it is one step; for 2B0 rank 1 has to run 1F1, which needs 0F1.
TEST_CASE("a true deadlock of synchronous exchanges names its circle and the way out") {
  Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 2, .chunks = 2});
  schedule.actions = {parse_actions("0F0 2F0 0F1 2B0 2F1 2B1 0B0 0B1"),
                      parse_actions("1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1")};
  PipelineCosts costs =
      even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .hop = {1}, .chunks = 2});
  CHECK_NOTHROW(build_graph(lower(schedule, {}), costs));
  costs.exchange = PipelineExchange::synchronous;
  CHECK_THROWS_WITH(build_graph(lower(schedule, {}), costs),
                    ContainsSubstring("deadlock: rank ") && ContainsSubstring("'s ") &&
                        ContainsSubstring(", which waits for rank ") && ContainsSubstring("again") &&
                        ContainsSubstring("exchange: asynchronous"));
}

TEST_CASE("data-parallel ranks sum their gradients between the last backward and the step") {
  PipelineCosts costs = even_costs(2, {.forward = {3}, .input_gradient = {5}, .weight_gradient = {7}});
  for (ComputeCost& stage : costs.stages) {
    stage.gradient_reduction = {100};
    stage.optimizer = {10};
  }
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 4});
  const Schedule lowered = lower(schedule, {.optimizer = true, .data_parallel = true});
  CHECK(validate(lowered).empty());
  CHECK(evaluate(build_graph(lowered, costs)).makespan.value == 5 * 15 + 110);
}
