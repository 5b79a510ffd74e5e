// All ranks of a layout: by the longest path they take what the pipeline's ranks take that stand for them.
#include "common/planner/unfolded.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "common/cost/gradient_buckets.hpp"
#include "common/planner/own_cores.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/block_cost/analytic_profile.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string overlapping = "{like: megatron-2022, data_overlap: true}";

std::vector<LayoutCase> unfolded_cases() {
  std::vector<LayoutCase> all;
  for (const char* software : {"plumb", "megatron-2021", "megatron-2022"}) {
    for (const char* schedule : {"gpipe", "1f1b", "{name: interleaved-1f1b, chunks: 2}", "zb-h1"}) {
      for (const char* recompute : {"none", "selective", "full", "{layers: 1}", "{every: 2}"}) {
        all.push_back({.tensor = 4, .schedule = schedule, .software = software, .recompute = recompute});
        LayoutCase mesh{.nodes = 4,
                        .pipeline = 4,
                        .tensor = 2,
                        .data = 4,
                        .sequence_parallel = true,
                        .schedule = schedule,
                        .software = software,
                        .recompute = recompute};
        all.push_back(mesh);
        mesh.asynchronous = true;
        all.push_back(mesh);
      }
    }
  }
  all.push_back({.nodes = 4, .pipeline = 2, .tensor = 4, .data = 4, .software = overlapping});
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    all.push_back(
        {.nodes = 4, .tensor = 16, .kind = "2d", .microbatch = 4, .schedule = schedule, .asynchronous = true});
  }
  all.push_back({.nodes = 2, .pipeline = 1, .tensor = 2, .data = 8, .software = overlapping, .recompute = "full"});
  all.push_back({.machine = "dgx-a100-4nic", .nodes = 2, .pipeline = 2, .tensor = 2, .data = 4});
  all.push_back({.nodes = 3, .pipeline = 2, .tensor = 4, .data = 3});  // a stage on one machine and a half
  all.push_back({.pipeline = 2, .tensor = 2, .schedule = "{name: seq-1f1b, slices: 2}"});
  for (const char* software : {"plumb", "megatron-2021", "{like: plumb, scattered_messages: true}"}) {
    all.push_back({.pipeline = 2,
                   .tensor = 4,
                   .schedule = "{name: seq-1f1b, slices: [224, 160, 96, 32]}",
                   .software = software,
                   .recompute = "{layers: 1}"});
  }
  for (const char* recompute : {"none", "full", "{layers: 1}"}) {
    all.push_back({.nodes = 2,
                   .pipeline = 2,
                   .tensor = 4,
                   .data = 2,
                   .sequence_parallel = true,
                   .schedule = "{name: seq-1f1b, slices: 4}",
                   .software = overlapping,
                   .recompute = recompute});
  }
  all.push_back({.pipeline = 4, .tensor = 2, .schedule = "{name: dualpipe-v, chunks: 2}"});
  for (const char* software : {"plumb", "megatron-2021", "megatron-2022"}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      for (const char* recompute : {"none", "full", "{layers: 1}"}) {
        LayoutCase grid{.nodes = 2, .tensor = 4, .kind = "2d", .microbatch = 4};
        grid.schedule = schedule;
        grid.software = software;
        grid.recompute = recompute;
        all.push_back(grid);
        grid.tensor = 8;  // each tensor group on a machine of its own, or over both
        grid.kind = "3d";
        all.push_back(grid);
        grid.pipeline = 1;
        grid.tensor = 16;
        grid.kind = "2.5d";
        grid.depth = 4;
        grid.microbatch = 8;
        all.push_back(grid);
      }
    }
  }
  all.push_back({.nodes = 2, .pipeline = 1, .tensor = 16, .kind = "2d", .microbatch = 4});
  all.push_back({.nodes = 2, .tensor = 4, .data = 2, .kind = "2d", .microbatch = 2, .software = overlapping});
  return all;
}

std::string name_of(const LayoutCase& c) {
  return c.machine + " " + c.schedule + " " + c.software + " " + c.recompute + " pp" + std::to_string(c.pipeline) +
         " tp" + std::to_string(c.tensor) + " " + c.kind + " dp" + std::to_string(c.data);
}

}  // namespace

TEST_CASE("without contention all ranks take the time, memory and traffic of those that stand for them") {
  std::size_t tried = 0;
  for (const LayoutCase& c : unfolded_cases()) {
    if (!testing::tries(tried++)) continue;
    INFO(name_of(c));
    const Plan plan = plan_of(c);
    const Timeline folded = predict_by_path(plan);
    const Timeline all = unfolded_timeline(plan, "path", [](const ScheduleGraph& graph) { return evaluate(graph); });
    REQUIRE(all.ranks.size() == static_cast<std::size_t>(ranks(plan.layout)));
    CHECK(all.steps[0].duration.value == Approx(folded.steps[0].duration.value).epsilon(1e-9));
    const int stride = pipeline_stride(plan.layout);
    std::vector<int> events(all.ranks.size());
    for (const Event& event : all.steps[0].events) ++events[static_cast<std::size_t>(event.rank)];
    for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
      const std::size_t stage = rank / static_cast<std::size_t>(stride);
      CHECK(all.ranks[rank].parameter_bytes == folded.ranks[stage].parameter_bytes);
      CHECK(all.ranks[rank].received_bytes == folded.ranks[stage].received_bytes);
      // Moments that differ by rounding may come in another order. Where every second layer is redone a message comes
      // just as an action ends: the peak may have it or not.
      const Bytes more = all.ranks[rank].peak_bytes - folded.ranks[stage].peak_bytes;
      const Bytes message = c.recompute == "{every: 2}" ? plan.costs.boundary_bytes : Bytes{};
      CHECK(std::abs(static_cast<double>(more.value)) <= static_cast<double>(message.value) + 1);
      CHECK(events[rank] == std::ranges::count(folded.steps[0].events, static_cast<int>(stage), &Event::rank));
    }
  }
}

TEST_CASE("an unfolded graph has every rank, and each collective waits for all of its group and lets all go on") {
  const Plan plan = plan_of({.nodes = 2, .pipeline = 2, .tensor = 4, .data = 2, .software = "megatron-2021"});
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
  const ScheduleGraph& graph = unfolded.graph;
  CHECK(graph.ranks == 16);
  for (NodeId id = 0; id < folded.nodes.size(); ++id) {
    const Node& node = folded.nodes[id];
    REQUIRE(unfolded.copies[id].size() == (node.kind == NodeKind::transfer ? 16 : 8));
    REQUIRE(unfolded.copies[id].front().rank == (node.kind == NodeKind::transfer ? 0 : 8 * node.rank));
  }
  std::vector<std::set<int>> before(graph.nodes.size());
  std::vector<std::set<int>> after(graph.nodes.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    for (const auto next : successors(graph, id)) {
      REQUIRE(next > id);
      before[next].insert(graph.nodes[id].rank);
      after[id].insert(graph.nodes[next].rank);
    }
  }
  std::size_t of_layers = 0;
  std::size_t reductions = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.kind == NodeKind::transfer) {
      CHECK(node.rank / 8 != node.peer / 8);
      CHECK(node.rank % 8 == node.peer % 8);
    }
    if (node.kind != NodeKind::collective) continue;
    const std::vector<int>& members = graph.groups[static_cast<std::size_t>(node.group)];
    const std::set<int> expected(members.begin(), members.end());
    ++(node.action.kind == ActionKind::reduce_gradient ? reductions : of_layers);
    CHECK(before[id] == expected);
    CHECK(after[id] == expected);
    const MeshAxis axis = node.action.kind == ActionKind::reduce_gradient ? MeshAxis::data : MeshAxis::tensor;
    CHECK(group(plan.layout, members.front(), axis) == members);
  }
  // Four layers a stage, two reductions in F and two in B (arXiv 1909.08053), the table's lookup and its head's logits
  // by stage; 16 microbatches, two tensor groups for each of two stages.
  CHECK(of_layers >= 16 * 2 * 2 * 4 * 4);
  CHECK(reductions == 2 * 4);
}

// Two layers of 2 × 2: a rank is column + 2·row + 4·depth.
TEST_CASE("collectives of a grid are of the ranks along its axes, and wait for those alone") {
  const Plan plan = plan_of({.pipeline = 1, .tensor = 8, .kind = "2.5d", .depth = 2, .microbatch = 4});
  const UnfoldedGraph unfolded = unfolded_graph(plan, build_graph(lowered_schedule(plan), plan.costs));
  const ScheduleGraph& graph = unfolded.graph;
  const std::map<std::string, std::set<std::vector<int>>> along = {
      {"column", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},  // inputs and results, norms
      {"row", {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},     // weights and their gradients
      {"depth", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},   // gradients of the copies of weights, once a step
      {"copies", {{0, 2, 4, 6}, {1, 3, 5, 7}}}};     // those of vectors of hidden channels
  const auto members = [&](const Node& node) { return graph.groups[static_cast<std::size_t>(node.group)]; };
  std::map<std::string, std::set<std::vector<int>>> met;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.kind == NodeKind::collective) {
      for (const auto& [axis, groups] : along) {
        if (groups.contains(members(node))) met[axis].insert(members(node));
      }
    }
    for (const auto next : successors(graph, id)) {
      const Node& behind = graph.nodes[next];
      const bool before = node.kind == NodeKind::collective;
      const std::vector<int> own = before ? members(node) : std::vector{node.rank};
      const std::vector<int> waiting = behind.kind == NodeKind::collective ? members(behind) : std::vector{behind.rank};
      CHECK(std::ranges::any_of(own, [&](int rank) { return std::ranges::find(waiting, rank) != waiting.end(); }));
      if (!before) CHECK(own.size() == 1);
    }
  }
  CHECK(met == along);
}

TEST_CASE("a reduction that the last backward hides is whole, and starts when that does") {
  LayoutCase c{.nodes = 2, .pipeline = 1, .tensor = 2, .data = 8, .batch = 4};
  c.software = overlapping;
  const Plan plan = plan_of(c);
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
  const Evaluation evaluation = evaluate(unfolded.graph);
  const Seconds whole = time_of(unfolding_details(plan).stages[0].reduction.shards);
  REQUIRE(plan.costs.stages[0].gradient_reduction < whole);
  const NodeId last = folded.rank_order[0][folded.rank_order[0].size() - 2];  // before the optimizer's step
  REQUIRE(folded.nodes[last].action.kind == ActionKind::backward);
  int found = 0;
  for (NodeId id = 0; id < folded.nodes.size(); ++id) {
    if (folded.nodes[id].action.kind != ActionKind::reduce_gradient) continue;
    for (std::size_t rank = 0; rank < unfolded.copies[id].size(); ++rank) {
      ++found;
      const NodeCopy& copy = unfolded.copies[id][rank];
      const double start = evaluation.start[copy.first].value;
      CHECK(start == Approx(evaluation.start[unfolded.copies[last][rank].first].value).epsilon(1e-12));
      CHECK(evaluation.end[copy.last].value == Approx(start + whole.value).epsilon(1e-12));
    }
  }
  CHECK(found == unfolded.graph.ranks);
}

namespace {

Scenario on_cores(int cores, int pipeline, int tensor, int data) {
  const auto text = [](int number) { return std::to_string(number); };
  return read_text(scenario_text(
      "cluster: {machine: local-cpu, ranks: " + text(pipeline * tensor * data) + ", cores: " + text(cores) +
      "}\ntraining: {sequence: 64, global_batch: 16, microbatch: 1}\nlayout: {pipeline: " + text(pipeline) +
      ", tensor: {degree: " + text(tensor) + "}, data: {degree: " + text(data) +
      "}}\nschedule: 1f1b\nsplit: uniform\n"));
}

Plan plan_on(const Scenario& scenario) { return make_plan(scenario, only_choice(scenario)); }

void check_same_times(const PipelineCosts& found, const PipelineCosts& expected) {
  REQUIRE(found.stages.size() == expected.stages.size());
  for (std::size_t stage = 0; stage < found.stages.size(); ++stage) {
    for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient,
                            &ComputeCost::optimizer}) {
      CHECK((found.stages[stage].*time).value == Approx((expected.stages[stage].*time).value).epsilon(1e-12));
    }
  }
}

}  // namespace

TEST_CASE("replicas on fewer cores compute replicas / cores times as long, and so is the longest path") {
  for (const auto& [cores, data, factor] : {std::tuple{2, 4, 2.0}, std::tuple{3, 4, 4.0 / 3}, std::tuple{1, 2, 2.0}}) {
    const Plan own = plan_on(on_cores(data, 1, 1, data));
    const Plan shared = plan_on(on_cores(cores, 1, 1, data));
    PipelineCosts expected = own.costs;
    for (ComputeCost& cost : expected.stages) {
      for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient}) {
        cost.*time = cost.*time * factor;
      }
      const Seconds overhead = own.software.step_overhead;
      cost.optimizer = (cost.optimizer - overhead) * factor + overhead;
    }
    check_same_times(shared.costs, expected);
    CHECK(shared.costs.stages[0].gradient_reduction == own.costs.stages[0].gradient_reduction);
    const ComputeCost& stage = own.costs.stages[0];
    const double work = (stage.forward + backward_time(stage)).value * 16 / data + stage.optimizer.value;
    const double longer =
        predict_by_path(shared).steps.front().duration.value - predict_by_path(own).steps.front().duration.value;
    CHECK(longer == Approx((factor - 1) * (work - own.software.step_overhead.value)).epsilon(1e-9));
  }
}

TEST_CASE("on cores of their own ranks cost what they do where there are enough") {
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2}) {
      const Plan shared = plan_on(on_cores(1, pipeline, tensor, 2));
      const Plan own = plan_on(on_cores(pipeline * tensor * 2, pipeline, tensor, 2));
      CHECK(shared.costs.stages[0].forward > 1.5 * own.costs.stages[0].forward);
      check_same_times(on_own_cores(shared).costs, own.costs);
      CHECK(on_own_cores(own) == own);
      // As if the costs were measured: what is predicted has another name.
      Plan measured = shared;
      measured.costs.provenance = "profile of a host";
      check_same_times(on_own_cores(measured).costs, own.costs);
    }
  }
}

// A profile is of ranks that had a core each, however many were busy: what sharing them costs is counted once.
TEST_CASE("measured times are slowed down as predicted ones are, however many ranks were busy") {
  for (const int busy : {1, 2}) {
    const auto measured = [&](int cores) {
      Scenario scenario = on_cores(cores, 1, 1, 4);
      scenario.profile = analytic_profile(on_cores(4, 1, 1, 4));
      scenario.profile->busy_ranks = busy;
      return plan_on(scenario).costs;
    };
    check_same_times(measured(4), plan_on(on_cores(4, 1, 1, 4)).costs);
    check_same_times(measured(2), plan_on(on_cores(2, 1, 1, 4)).costs);
  }
}

TEST_CASE("a plan of folded ranks on shared cores says how many each computes on, and is read again") {
  const Plan shared = plan_on(on_cores(3, 2, 2, 1));
  CHECK(shared.costs.cores_per_rank == 2);
  CHECK(read_back(shared) == shared);
  CHECK(plan_on(on_cores(1, 2, 2, 1)).costs.cores_per_rank == 1);
  CHECK(plan_on(on_cores(2, 2, 1, 1)).costs.cores_per_rank == 1);
  CHECK_THAT(message_after(shared, [](Plan& plan) { plan.costs.cores_per_rank = 1; }),
             ContainsSubstring("a pipeline rank's ranks compute on 2 cores of a machine"));
}
