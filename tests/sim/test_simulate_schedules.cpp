// Whole schedules through SimGrid: equal to the longest path where nothing contends, and exact where ranks share.
#include <limits>
#include <random>

#include "common/schedule/generators/registry.hpp"
#include "sim/runner.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

namespace {

struct Case {
  ScheduleGraph graph;
  PipelineCosts costs;
};

// Random times of every stage; one machine holds all ranks.
Case random_case(const ScheduleEntry& entry, int ranks, TransferCost port, std::mt19937& random) {
  const int microbatches = ranks * std::uniform_int_distribution<int>(2, 4)(random);
  const Schedule schedule =
      entry.generate(shape_for(entry, {.chunks = 2, .microbatches = microbatches, .ranks = ranks}));
  std::uniform_real_distribution<double> seconds(0.5, 2.0);
  PipelineCosts costs = even_costs(stages(schedule), {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  for (ComputeCost& stage : costs.stages) {
    stage.forward = {seconds(random)};
    stage.input_gradient = {seconds(random)};
    stage.weight_gradient = {seconds(random)};
    stage.optimizer = {seconds(random)};
  }
  costs.boundary_bytes = {1'000'000'000};
  costs.tied_bytes = {500'000'000};
  costs.inside = port;
  costs.outside = port;
  costs.ranks_per_machine = ranks;
  const LoweringOptions options{.optimizer = true, .tied_embeddings = !entry.updates_within};
  return {.graph = build_graph(lower(schedule, options), costs), .costs = costs};
}

constexpr double endless = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("without contention SimGrid and the longest path agree, node by node") {
  std::mt19937 random(1);
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      if (!applies(entry, {.chunks = 2, .microbatches = 2 * ranks, .ranks = ranks})) continue;
      const Case c = random_case(entry, ranks, {.latency = {0.125}, .bandwidth = {endless}}, random);
      const Evaluation path = evaluate(c.graph);
      const Evaluation simulated = sim::simulate(c.graph, c.costs);
      INFO(entry.name << " on " << ranks);
      REQUIRE(c.graph.nodes.size() > 2);
      double worst = std::abs((simulated.makespan - path.makespan).value);
      for (std::size_t i = 0; i < c.graph.nodes.size(); ++i) {
        worst = std::max({worst, std::abs((simulated.start[i] - path.start[i]).value),
                          std::abs((simulated.end[i] - path.end[i]).value)});
      }
      CHECK(worst < 1e-9);
    }
  }
}

TEST_CASE("messages with bandwidth agree as well between two ranks, whose ports carry one message at a time") {
  std::mt19937 random(2);
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}) {
    const ScheduleEntry& entry = find_schedule(name);
    const Case c = random_case(entry, 2, {.latency = {1e-3}, .bandwidth = {4e9}}, random);
    CHECK(sim::simulate(c.graph, c.costs).makespan.value == Approx(evaluate(c.graph).makespan.value).epsilon(1e-9));
  }
}

TEST_CASE("contention never makes a schedule faster, and with slow links it makes some slower") {
  std::mt19937 random(3);
  bool slower = false;
  for (const ScheduleEntry& entry : schedule_entries()) {
    const Case c = random_case(entry, 6, {.latency = {0.01}, .bandwidth = {1e9}}, random);
    const double path = evaluate(c.graph).makespan.value;
    const double simulated = sim::simulate(c.graph, c.costs).makespan.value;
    CHECK(simulated >= path - 1e-9);
    slower = slower || simulated > path + 1e-6;
  }
  CHECK(slower);
}

TEST_CASE("all ranks on one core take the sum of all work, whatever the schedule") {
  std::mt19937 random(4);
  for (const ScheduleEntry& entry : schedule_entries()) {
    Case c = random_case(entry, 4, {.latency = {0}, .bandwidth = {endless}}, random);
    c.costs.cores_per_machine = 1;
    Seconds work;
    for (const Node& node : c.graph.nodes) work += node.duration;
    CHECK(sim::simulate(c.graph, c.costs).makespan.value == Approx(work.value).epsilon(1e-9));
  }
}

TEST_CASE("one core per rank changes nothing") {
  std::mt19937 random(5);
  for (const ScheduleEntry& entry : schedule_entries()) {
    Case c = random_case(entry, 4, {.latency = {0.1}, .bandwidth = {endless}}, random);
    c.costs.cores_per_machine = 4;
    CHECK(sim::simulate(c.graph, c.costs).makespan.value == Approx(evaluate(c.graph).makespan.value).epsilon(1e-9));
  }
}
