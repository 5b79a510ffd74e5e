// Plans of ZeRO-2, ZeRO-3, FSDP and HSDP: memory and traffic by the formulas of arXiv 1910.02054, sections 5 and 7, and
// of arXiv 2304.11277, from counts of parameters alone.
#include <algorithm>

#include "common/block_cost/analytic_cost.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/sharded_plans.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string hybrid = "{kind: hsdp, replicate: 2}";
const std::string kept = ", reshard_after_forward: false, reduce: last_microbatch";  // as under a pipeline
const std::string at_use = ", reshard_after_forward: true, reduce: each_microbatch";

}  // namespace

// facts of arXiv 1910.02054, figure 1 and table 1: 16-bit weights and gradients, 12 bytes of Adam's states.
TEST_CASE("ZeRO's table of memory, from counts of parameters") {
  struct Row {
    double parameters;
    int ranks;
    double whole;  // GB
    double stages[3];
  };
  for (const Row& row :
       {Row{7.5e9, 64, 120, {31.40625, 16.640625, 1.875}}, Row{128e9, 1024, 2048, {513.5, 257.75, 2.0}},
        Row{1e12, 1024, 16000, {4011.71875, 2013.671875, 15.625}}}) {
    Scenario scenario =
        read_text(scenario_text("training: {precision: bf16}\nsoftware: {like: plumb, gradients: bf16}\n"));
    const auto gigabytes = [&](Sharding sharding) {
      scenario.layout.data = {.degree = row.ranks, .sharding = sharding};
      scenario.layout.data.reduces_each_microbatch = sharding >= Sharding::zero2;
      ComputeCost cost;
      set_states(cost, all_trained(static_cast<std::int64_t>(row.parameters), state_shards(scenario.layout)), scenario);
      return static_cast<double>((cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes).value) / 1e9;
    };
    CHECK(gigabytes(Sharding::none) == Approx(row.whole).epsilon(1e-9));
    CHECK(gigabytes(Sharding::zero1) == Approx(row.stages[0]).epsilon(1e-9));
    CHECK(gigabytes(Sharding::zero2) == Approx(row.stages[1]).epsilon(1e-9));
    CHECK(gigabytes(Sharding::zero3) == Approx(row.stages[2]).epsilon(1e-9));
    CHECK(gigabytes(Sharding::fsdp) == gigabytes(Sharding::zero3));
  }
}

// With w, g, s bytes of a weight, its gradient and its states, n shards: ZeRO-2 w + (g + s)/n, FSDP (w + g + s)/n, with
// whole gradients until the step w/n + g + s/n, and between UNSHARD and STEP w more.
TEST_CASE("the resident bytes of a rank follow from rule and flags") {
  constexpr double states = 12;
  for (const int n : {2, 4, 8}) {
    const auto held = [&](const std::string& sharding) {
      const Plan plan = plan_of(sharded(sharding, n));
      const ComputeCost& cost = plan.costs.stages.front();
      const double psi = static_cast<double>(cost.parameters);
      CHECK(cost.optimizer_bytes.value == static_cast<std::int64_t>(states * psi) / state_shards(plan.layout));
      return static_cast<double>(states_held(cost).value) / psi;
    };
    CHECK(held("zero2") == weight + (gradient + states) / n);
    CHECK(held("zero2, reduce: last_microbatch") == weight + gradient + states / n);
    CHECK(held("fsdp") == (weight + gradient + states) / n);
    CHECK(held("zero3, reduce: last_microbatch") == weight / n + gradient + states / n);
    CHECK(held("fsdp" + kept) == weight / n + weight + gradient + states / n);
    CHECK(held(hybrid) == (weight + gradient + states) / (n / 2));
  }
}

// Section 7 of ZeRO: 2Ψ of gradients and weights once a step; (m + 1)Ψ where every microbatch is reduced; FSDP that
// keeps what it gathered 2Ψ, else 3Ψ for each microbatch, and Ψ more for a forward that is done again. HSDP: the same
// inside a copy, and 2(R−1)/R of the own part over R copies.
TEST_CASE("ranks receive what the formulas say, to the byte") {
  for (const int n : {2, 4, 8}) {
    const double part = static_cast<double>(n - 1) / n;
    const auto check = [&](const LayoutCase& c, double of_weights, double of_gradients) {
      CAPTURE(c.sharding, c.schedule, c.recompute, n);
      const Plan plan = plan_of(c);
      for (int rank = 0; rank < c.pipeline; ++rank) {
        const double psi = parameters_of_rank(plan, rank);
        CHECK(received(plan, rank) == psi * (of_weights * weight + of_gradients * gradient));
      }
    };
    for (const int pipeline : {1, 2}) {
      for (const std::string schedule : {"1f1b", "zb-h1"}) {
        if (pipeline == 1 && schedule == "zb-h1") continue;
        check(sharded("none", n, pipeline, schedule), 0, 2 * part);
        check(sharded("zero1", n, pipeline, schedule), part, part);
        check(sharded("zero2, reduce: last_microbatch", n, pipeline, schedule), part, part);
        check(sharded("zero2", n, pipeline, schedule), part, microbatches * part);
        check(sharded("fsdp" + kept, n, pipeline, schedule), part, part);
        check(sharded("zero3" + at_use, n, pipeline, schedule), 2 * microbatches * part, microbatches * part);
        LayoutCase redone = sharded("fsdp" + at_use, n, pipeline, schedule);
        redone.recompute = "full";
        check(redone, 3 * microbatches * part, microbatches * part);
        const int shards = n / 2;
        const double inside = static_cast<double>(shards - 1) / shards;
        if (shards == 1) continue;
        check(sharded(hybrid + kept, n, pipeline, schedule), inside, inside + 2 * 0.5 / shards);
        check(sharded(hybrid + at_use, n, pipeline, schedule), 2 * microbatches * inside,
              microbatches * inside + 2 * 0.5 / shards);
      }
    }
  }
}

TEST_CASE("without resharding each stage is gathered before its first forward, with resharding in its actions") {
  for (const std::string schedule : {"1f1b", "zb-h1", "{name: interleaved-1f1b, chunks: 2}"}) {
    CAPTURE(schedule);
    const Plan plan = plan_of(sharded("fsdp" + kept, 4, 2, schedule));
    const Schedule lowered = lowered_schedule(plan);
    REQUIRE(validate(lowered).empty());
    for (const std::vector<Action>& list : lowered.actions) {
      CHECK(std::ranges::count(list, ActionKind::unshard, &Action::kind) == plan.schedule.chunks);
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != ActionKind::unshard) continue;
        const auto first = std::ranges::find_if(
            list, [&](const Action& a) { return a.stage == list[i].stage && a.kind == ActionKind::forward; });
        const auto next = list.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        REQUIRE(first >= next);
        CHECK(std::all_of(next, first, [](const Action& a) { return is_receive(a.kind); }));
      }
    }
    const Plan resharded = plan_of(sharded("fsdp" + at_use, 4, 2, schedule));
    CHECK_FALSE(has_action(lowered_schedule(resharded), ActionKind::unshard));
    for (const ComputeCost& cost : resharded.costs.stages) CHECK(cost.weight_gathering == Seconds{});
  }
}

TEST_CASE("a rank alone in its pipeline waits for its gathering, and holds whole weights from then until its step") {
  const Plan plan = plan_of(sharded("fsdp" + kept, 4));
  const ComputeCost& cost = plan.costs.stages.front();
  const Timeline timeline = predict_by_path(plan);
  const std::vector<Event>& events = timeline.steps.front().events;
  REQUIRE(events.front().action.kind == ActionKind::unshard);
  CHECK(events.front().start == Seconds{});
  CHECK(events.front().end.value == Approx(cost.weight_gathering.value));
  CHECK(events[1].start == events.front().end);
  const std::vector<MemoryPoint>& levels = timeline.memory.front();
  CHECK(levels.front().bytes == states_held(cost));
  CHECK(levels.back().bytes == states_held(cost) - cost.data_moves.unsharded);
  const auto step = std::ranges::find(events, ActionKind::optimizer_step, [](const Event& e) { return e.action.kind; });
  CHECK(levels.back().time == step->start);
  CHECK(timeline.ranks.front().parameter_bytes == cost.parameter_bytes + cost.data_moves.unsharded);
}

// What is gathered stands beside the activations: two neighbours at a time.
TEST_CASE("the peak of a resharding plan has the weights of two blocks, not of all") {
  const Plan none = plan_of(sharded("zero3, reduce: last_microbatch", 8));
  const Plan all = plan_of(sharded("zero3, reshard_after_forward: false, reduce: last_microbatch", 8));
  const Bytes layer{static_cast<std::int64_t>(weight) * 12 * 1024 * 1024};  // 12h² but for its norms
  const Bytes more = predict_by_path(all).ranks.front().peak_bytes - predict_by_path(none).ranks.front().peak_bytes;
  const Bytes whole = all.costs.stages.front().data_moves.unsharded;
  CHECK(more >= whole - layer * 2 - layer / 100);  // two layers, with their norms, or the smaller head and one
  CHECK(more < whole - layer);
}

TEST_CASE("without overlap every gather and reduction stands in the times of its action") {
  LayoutCase c = sharded("fsdp", 8);
  c.software = "{like: plumb, data_overlap: false}";
  const Plan exposed = plan_of(c);
  const ComputeCost& cost = exposed.costs.stages.front();
  const DataMoves& moves = cost.data_moves;
  CHECK(moves.waits.forward.value == Approx(moves.gathering.value));
  CHECK(moves.waits.backward.value == Approx((moves.gathering + moves.reducing).value));
  c.sharding = "none";
  const ComputeCost alone = plan_of(c).costs.stages.front();
  CHECK(cost.forward.value == Approx((alone.forward + moves.gathering).value));
  CHECK(backward_time(cost).value == Approx((backward_time(alone) + moves.gathering + moves.reducing).value));
  c.sharding = "fsdp";
  c.software = "{like: plumb, data_overlap: true}";
  const ComputeCost hidden = plan_of(c).costs.stages.front();
  CHECK(hidden.forward < cost.forward);
  CHECK(hidden.forward.value >= Approx((alone.forward + moves.gathering / 10).value).epsilon(0.2));
}

// Ring's closed forms over NVLink and over NICs: HSDP inside a machine gathers at the machine's speed.
TEST_CASE("HSDP's groups stand where its ranks do") {
  LayoutCase c = sharded("{kind: hsdp, shard: 8}" + kept, 32);
  const Plan hsdp = plan_of(c);
  c.sharding = "fsdp" + kept;
  const Plan fsdp = plan_of(c);
  const StageGroups groups = stage_groups(hsdp, 0);
  CHECK(groups.data.all.ranks == 8);
  CHECK(groups.data.all.per_machine == 8);
  CHECK(groups.copies.ranks == 4);
  CHECK(groups.copies.per_machine == 1);
  CHECK(stage_groups(fsdp, 0).data.all.per_machine == 8);
  CHECK(stage_groups(fsdp, 0).data.all.ranks == 32);
  const Machine& machine = hsdp.cluster.machine;
  const auto bytes = static_cast<double>(hsdp.costs.stages.front().gathered_bytes.value);
  CHECK(hsdp.costs.stages.front().weight_gathering ==
        collective_time(machine, Collective::all_gather, bytes, {.ranks = 8, .per_machine = 8}));
  CHECK(hsdp.costs.stages.front().weight_gathering < fsdp.costs.stages.front().weight_gathering);
}

TEST_CASE("folded and unfolded ranks of plans that gather once a step take the same time") {
  for (const std::string& sharding : {"fsdp" + kept, hybrid + kept, std::string("zero2, reduce: last_microbatch")}) {
    for (const bool overlap : {false, true}) {
      CAPTURE(sharding, overlap);
      LayoutCase c = sharded(sharding, 4, 2);
      c.software = overlap ? "{like: plumb, data_overlap: true}" : "{like: plumb, data_overlap: false}";
      const Plan plan = plan_of(c);
      const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
      const Seconds step = evaluate(folded).makespan;
      CHECK(evaluate(unfolded_graph(plan, folded).graph).makespan.value == Approx(step.value).epsilon(1e-9));
    }
  }
}

// Moves of data-parallel ranks beside the blocks of all tensor groups: the sum of maxima is the longest path of that.
TEST_CASE("folded and unfolded ranks of plans whose actions gather and reduce take the same time") {
  for (const std::string& sharding : {"fsdp" + at_use, hybrid + at_use, std::string("zero2"),
                                      std::string("zero3, reshard_after_forward: true, reduce: last_microbatch")}) {
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      for (const int tensor : {1, 2}) {
        for (const std::string recompute : {"none", "full"}) {
          CAPTURE(sharding, schedule, tensor, recompute);
          LayoutCase c = sharded(sharding, 4, 2, schedule);
          c.tensor = tensor;
          c.sequence_parallel = tensor > 1;
          c.recompute = recompute;
          const bool exposed = recompute == "full" && tensor == 2;
          c.software = exposed ? "{like: plumb, data_overlap: false, recompute_unit: layer}"
                               : "{like: plumb, data_overlap: true}";
          const Plan plan = plan_of(c);
          const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
          const Seconds step = evaluate(folded).makespan;
          const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
          CHECK(evaluate(unfolded.graph).makespan.value == Approx(step.value).epsilon(1e-9));
          const auto moves = [](const Node& node) {
            return node.kind == NodeKind::collective && is_compute(node.action.kind) && node.bytes > Bytes{};
          };
          CHECK(std::ranges::any_of(unfolded.graph.nodes, moves));
        }
      }
    }
  }
}

TEST_CASE("plans of every sharding are read back as they were, and may not be edited into what they are not") {
  for (const std::string sharding : {"zero2", "zero3", "fsdp, reduce: last_microbatch", "{kind: hsdp, shard: 2}"}) {
    const Plan plan = plan_of(sharded(sharding, 4));
    const TemporaryFolder folder;
    CHECK(read_plan(folder.write("plan.json", to_json(plan))) == plan);
    CHECK_NOTHROW(require_predicted_costs(plan, "plan.json"));
  }
  // Of 2.5d every gradient is a summand of the depth's first, so that no action reduces any.
  for (const std::string& sharding : {std::string("zero2, reduce: each_microbatch"), "fsdp" + at_use}) {
    LayoutCase grid = sharded(sharding, 2);
    grid.tensor = 8;
    grid.kind = "2.5d";
    grid.depth = 2;
    grid.microbatch = 4;
    const Plan plan = plan_of(grid);
    for (const ComputeCost& cost : plan.costs.stages) CHECK(cost.data_moves.reduced == Bytes{});
    CHECK(read_back(plan) == plan);
  }
  // Keys that only such plans have.
  const std::string text = to_json(plan_of(sharded("zero1", 4)));
  for (const char* key : {"reshard_after_forward", "reduces_each_microbatch", "data_moves"}) {
    CHECK(text.find(key) == std::string::npos);
  }
}

TEST_CASE("a tied table and summands of tensor ranks stay whole until the step") {
  LayoutCase c = sharded("zero2", 4, 2);
  c.tied = true;
  const Plan tied = plan_of(c);
  c.tied = false;
  const Plan apart = plan_of(c);
  const std::int64_t table = 1024 * 1024;
  for (const std::size_t stage : {0U, 1U}) {
    const ComputeCost& cost = tied.costs.stages[stage];
    CHECK(reduced_bytes(cost) == Bytes{static_cast<std::int64_t>(gradient) * table});
    CHECK(reduced_bytes(apart.costs.stages[stage]) == Bytes{});
    CHECK(cost.data_moves.accumulated.value * 4 == cost.data_moves.reduced.value);
  }
  c.tensor = 2;
  c.sequence_parallel = true;
  const Plan divided = plan_of(c);
  for (const ComputeCost& cost : divided.costs.stages) {
    CHECK(cost.tensor_gradient_bytes > Bytes{});
    CHECK(reduced_bytes(cost) == cost.tensor_gradient_bytes);
  }
}

TEST_CASE("a plan is read back with each sharding, and may not be edited into another, whose costs are others") {
  const std::vector<std::string> all{"none",
                                     "zero1",
                                     "zero2, reduce: each_microbatch",
                                     "fsdp" + kept,
                                     "fsdp" + at_use,
                                     "fsdp, reshard_after_forward: true, reduce: last_microbatch",
                                     "{kind: hsdp, replicate: 2}" + kept};
  for (const bool tied : {false, true}) {
    for (const int pipeline : {1, 2}) {
      std::vector<Plan> plans;
      for (const std::string& sharding : all) {
        LayoutCase layout = sharded(sharding, 4, pipeline);
        layout.tied = tied;
        plans.push_back(plan_of(layout));
      }
      for (const Plan& plan : plans) {
        CAPTURE(tied, pipeline, describe(plan.layout));
        CHECK(to_json(read_back(plan)) == to_json(plan));
        for (const Plan& other : plans) {
          if (&other == &plan) continue;
          CAPTURE(describe(other.layout), other.layout.data.reshard_after_forward);
          const std::string message = message_after(plan, [&](Plan& edited) { edited.layout = other.layout; });
          CHECK_THAT(message, ContainsSubstring("costs.stages") && ContainsSubstring("the layout's sharding, ") &&
                                  ContainsSubstring("hint: times and bandwidths"));
        }
      }
    }
  }
}
