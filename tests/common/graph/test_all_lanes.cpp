#include "common/graph/all_lanes.hpp"

#include <set>

#include "common/graph/evaluate.hpp"
#include "common/layout/lane.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct Folded {
  PipelineCosts costs;
  ScheduleGraph graph;
};

Folded folded(const char* schedule, int ranks, int chunks, bool tied) {
  const Schedule lowered = lower(generate_schedule(schedule, {.ranks = ranks, .microbatches = 8, .chunks = chunks}),
                                 {.optimizer = true, .data_parallel = true, .tied_embeddings = tied});
  Folded made{.costs = even_costs(
                  stages(lowered),
                  {.forward = {1e-3}, .input_gradient = {1.2e-3}, .weight_gradient = {0.9e-3}, .chunks = chunks}),
              .graph = {}};
  if (tied) made.costs.tied_bytes = {1 << 16};
  made.costs.inside = {.latency = {1e-5}, .bandwidth = {1e9}};
  for (ComputeCost& cost : made.costs.stages) cost.gradient_reduction = {3e-3};
  made.graph = build_graph(lowered, made.costs);
  return made;
}

}  // namespace

TEST_CASE("all lanes take as long as one, and each lane has the pipeline's nodes on its own ranks") {
  for (const auto& [schedule, chunks] :
       std::map<const char*, int>{{"1f1b", 1}, {"zb-h1", 1}, {"interleaved-1f1b", 2}}) {
    for (const auto& order :
         {std::array{MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data, MeshAxis::pipeline},
          std::array{MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data}}) {
      const Layout layout{.order = order, .pipeline = 4, .tensor = {}, .data = {.degree = 3}};
      const Folded one = folded(schedule, 4, chunks, true);
      const ScheduleGraph all = in_all_lanes(one.graph, one.costs, layout);
      CAPTURE(schedule);
      CHECK(all.ranks == 12);
      CHECK(evaluate(all).makespan.value == Approx(evaluate(one.graph).makespan.value));
      std::size_t sums = 0;
      for (const Node& node : all.nodes) sums += node.group >= 0 ? 1 : 0;
      CHECK(sums == one.costs.stages.size());
      CHECK(all.nodes.size() == 3 * (one.graph.nodes.size() - sums) + sums);
      for (const Node& node : all.nodes) {
        if (node.peer < 0) continue;
        const std::vector<int> lane = group(layout, node.rank, MeshAxis::pipeline);
        REQUIRE(std::ranges::find(lane, node.peer) != lane.end());
      }
      // Each rank is occupied by its pipeline rank's actions, in their order.
      for (int rank = 0; rank < all.ranks; ++rank) {
        const std::vector<NodeId>& own = all.rank_order[static_cast<std::size_t>(rank)];
        const std::vector<NodeId>& planned =
            one.graph.rank_order[static_cast<std::size_t>(lane_of(layout, rank).pipeline_rank)];
        REQUIRE(std::ranges::equal(own, planned, [&](NodeId here, NodeId there) {
          return all.nodes[here].rank == rank && all.nodes[here].action == one.graph.nodes[there].action;
        }));
      }
    }
  }
}

// One stage, so that all is known by hand: 8 microbatches of 3.1 ms, the sum of 3 ms, no optimizer.
TEST_CASE("a sum of gradients waits for the slowest lane, and all go on behind it") {
  const Folded one = folded("gpipe", 1, 1, false);
  const Layout layout{.pipeline = 1, .tensor = {}, .data = {.degree = 2}};
  ScheduleGraph all = in_all_lanes(one.graph, one.costs, layout);
  std::vector<Seconds> durations = plumb::durations(all);
  for (NodeId node = 0; node < all.nodes.size(); ++node) {
    if (all.nodes[node].kind == NodeKind::compute && all.nodes[node].rank == 1) durations[node] = durations[node] * 2;
  }
  const Evaluation slow = evaluate(all, durations);
  for (NodeId node = 0; node < all.nodes.size(); ++node) {
    if (all.nodes[node].group < 0) continue;
    CHECK(slow.start[node].value == Approx(2 * 8 * 3.1e-3));
    CHECK(all.groups[static_cast<std::size_t>(all.nodes[node].group)] == std::vector<int>{0, 1});
  }
  CHECK(slow.makespan.value == Approx(2 * 8 * 3.1e-3 + 3e-3));
}

TEST_CASE("a graph of another pipeline is refused") {
  const Folded one = folded("1f1b", 2, 1, false);
  CHECK_THROWS_WITH(in_all_lanes(one.graph, one.costs, {.pipeline = 4, .tensor = {}, .data = {.degree = 2}}),
                    ContainsSubstring("not of this layout's pipeline of 4 ranks"));
}
