// HSDP's sums over copies beside the last backward: against streams simulated piece by piece, and ranks folded or not.
#include <algorithm>
#include <cmath>
#include <random>

#include "common/block_cost/block_costs.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/sharded_plans.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string adding_up(bool copies, const std::string& bucket = "90 MB") {
  return "{like: plumb, data_overlap: true, data_bucket: {bytes: " + bucket +
         "}, copies_overlap: " + (copies ? "true" : "false") + "}";
}

// Layers have 67 MB of gradients, so that no block fills more than one bucket of 90 MB.
LayoutCase over_copies(const std::string& flags, const std::string& network, int pipeline = 1,
                       const std::string& schedule = "1f1b") {
  LayoutCase c = sharded("{kind: hsdp, shard: 8}" + flags, 16, pipeline, schedule);
  c.machine = "{like: dgx-a100, name: made up, outside: {bandwidth: {value: " + network + ", source: test}}}";
  c.software = adding_up(true);
  return c;
}

const std::string by_bucket = ", reshard_after_forward: false, reduce: last_microbatch";
const std::string by_block = ", reshard_after_forward: true, reduce: each_microbatch";

// A stream that adds up over the copies, beside a backward of this time: what is there at `ready`, in this order; the
// last one waits for the backward.
double shown_over_copies(const std::vector<double>& ready, const std::vector<double>& takes, double backward) {
  double free = 0;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    free = std::max(free, ready[i]);
    if (i + 1 == ready.size()) free = std::max(free, backward);
    free += takes[i];
  }
  return free - backward;
}

double alone(const Plan& plan, Collective kind, double bytes, const GroupPlacement& group) {
  return collective_time(plan.cluster.machine, kind, bytes, group).value;
}

std::pair<Seconds, Seconds> folded_and_unfolded(const Plan& plan) {
  const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
  return {evaluate(folded).makespan, evaluate(unfolded_graph(plan, folded).graph).makespan};
}

}  // namespace

TEST_CASE("each bucket is added up over HSDP's copies behind its own reduce-scatter and the bucket before it") {
  for (const std::string network : {"0.2 GB/s", "3 GB/s", "100 GB/s"}) {
    LayoutCase c = over_copies(by_bucket, network);
    const Plan plan = plan_of(c);
    const StageGroups groups = stage_groups(plan, 0);
    const std::vector<BlockGradients> blocks = gradients_in_backward(plan).front();
    double all = 0;
    double backward = 0;
    for (const BlockGradients& block : blocks) {
      all += static_cast<double>(block.bytes.value);
      backward += block.backward.value;
    }
    std::vector<double> summed;
    std::vector<double> takes;
    double free = 0;
    for (double begin = 0; begin < all; begin += 90e6) {
      const double end = std::min(begin + 90e6, all);
      double ready = 0;
      double made = 0;
      for (const BlockGradients& block : blocks) {
        ready += block.backward.value;
        made += static_cast<double>(block.bytes.value);
        if (made >= end) break;
      }
      free = std::max(free, ready) + alone(plan, Collective::reduce_scatter, end - begin, groups.data.all);
      summed.push_back(free);
      takes.push_back(alone(plan, Collective::all_reduce, (end - begin) / 8, groups.copies));
    }
    REQUIRE(takes.size() > 5);
    const double wanted = shown_over_copies(summed, takes, backward);
    const double got = plan.costs.stages.front().gradient_reduction.value;
    CAPTURE(network);
    CHECK(got == Approx(wanted).epsilon(1e-9));
    std::ranges::reverse(takes);  // the remainder first; where the sums take longest, their order tells nothing
    if (network != "0.2 GB/s") CHECK(got != Approx(shown_over_copies(summed, takes, backward)).epsilon(1e-3));
    c.software = adding_up(false);
    const double behind = plan_of(c).costs.stages.front().gradient_reduction.value;
    CHECK(got < behind);
  }
}

// As in moves_in_sequence.hpp: block i + 1 is reduced while block i computes, behind what is gathered for block i - 1.
TEST_CASE("where actions reduce, each block is added up over HSDP's copies when the last of them has reduced it") {
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    for (const std::string network : {"0.2 GB/s", "3 GB/s", "100 GB/s"}) {
      CAPTURE(schedule, network);
      LayoutCase c = over_copies(by_block, network, 2, schedule);
      const bool weight = schedule == "zb-h1";
      const Plan plan = plan_of(c);
      c.software = adding_up(false);
      const Plan behind = plan_of(c);
      const GroupPlacement copies = stage_groups(plan, 0).copies;
      const std::vector<ComputeCost> all = blocks_as_split(plan);
      for (int stage = 0; stage < 2; ++stage) {
        const auto blocks = stage_blocks(all, plan.split, stage);
        std::vector<double> reduced;
        std::vector<double> takes;
        double now = weight ? 0 : blocks.back().data_moves.gathering.value;
        double own = 0;
        for (int i = static_cast<int>(blocks.size()) - 1; i >= -1; --i) {
          const auto at = static_cast<std::size_t>(i);
          double moved = now + (weight || i <= 0 ? 0 : blocks[at - 1].data_moves.gathering.value);
          if (at + 1 < blocks.size()) {
            const DataMoves& moves = blocks[at + 1].data_moves;
            moved += moves.reducing.value;
            const double own_part = static_cast<double>(moves.reduced.value) / 8;
            reduced.push_back(moved);
            takes.push_back(alone(plan, Collective::all_reduce, own_part, copies));
            own += own_part;
          }
          const double computing = i < 0    ? 0
                                   : weight ? blocks[at].weight_gradient.value
                                            : backward_time(blocks[at]).value;
          now = std::max(now + computing, moved);
        }
        const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
        REQUIRE(now == Approx(weight ? cost.weight_gradient.value : backward_time(cost).value).epsilon(1e-9));
        CHECK(cost.gradient_reduction.value == Approx(shown_over_copies(reduced, takes, now)).epsilon(1e-9));
        const Seconds one = behind.costs.stages[static_cast<std::size_t>(stage)].gradient_reduction;
        CHECK(one.value == Approx(alone(plan, Collective::all_reduce, own, copies)).epsilon(1e-9));
        if (network == "100 GB/s") CHECK(cost.gradient_reduction < one);
      }
    }
  }
}

TEST_CASE("folded and unfolded ranks take the same time where copies are added up beside the backward") {
  std::mt19937 random(11);
  const auto one_of = [&](const auto& all) { return all[random() % std::size(all)]; };
  int hidden = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string flags =
        one_of(std::vector<std::string>{by_bucket, by_block, ", reshard_after_forward: true, reduce: last_microbatch",
                                        ", reshard_after_forward: false, reduce: each_microbatch"});
    const int pipeline = one_of(std::vector{1, 2});
    const std::string schedule =
        one_of(std::vector<std::string>{"1f1b", "zb-h1", "gpipe", "{name: interleaved-1f1b, chunks: 2}"});
    LayoutCase c = over_copies(flags, one_of(std::vector<std::string>{"0.3 GB/s", "2 GB/s", "20 GB/s"}), pipeline,
                               pipeline == 1 ? "1f1b" : schedule);
    c.sharding = one_of(std::vector<std::string>{"{kind: hsdp, shard: 4}", "{kind: hsdp, replicate: 2}"}) + flags;
    c.data = one_of(std::vector{8, 16});
    c.tensor = one_of(std::vector{1, 2});
    c.nodes = 8;
    c.tied = one_of(std::vector{0, 1}) == 1;
    c.batch = 4;
    const std::string bucket = one_of(std::vector<std::string>{"3 MB", "90 MB", "400 MB"});
    c.software = adding_up(true, bucket);
    CAPTURE(c.sharding, c.schedule, pipeline, c.tensor, c.data, c.tied, bucket, c.machine);
    const Plan plan = plan_of(c);
    const auto [folded, unfolded] = folded_and_unfolded(plan);
    CHECK(unfolded.value == Approx(folded.value).epsilon(1e-9));
    c.software = adding_up(false, bucket);
    const auto [behind, all_behind] = folded_and_unfolded(plan_of(c));
    CHECK(all_behind.value == Approx(behind.value).epsilon(1e-9));
    if (bucket != "3 MB") CHECK(folded <= behind * (1 + 1e-3));  // each of many sums has its latency
    hidden += folded < behind * 0.999 ? 1 : 0;
  }
  CHECK(hidden > 30);
}

// Of rank 0: its groups' nodes by start.
TEST_CASE("in the graph of all ranks each sum over copies starts behind its own reduce-scatter, in its order") {
  for (const bool in_actions : {false, true}) {
    LayoutCase c = over_copies(
        ", reshard_after_forward: false, reduce: " + std::string(in_actions ? "each_microbatch" : "last_microbatch"),
        "5 GB/s");
    c.batch = 2;
    const Plan plan = plan_of(c);
    const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
    const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
    const Evaluation times = evaluate(unfolded.graph);
    std::vector<NodeId> within;
    std::vector<NodeId> over;
    for (NodeId id = 0; id < unfolded.graph.nodes.size(); ++id) {
      const Node& node = unfolded.graph.nodes[id];
      if (node.kind != NodeKind::collective || node.action.kind == ActionKind::unshard) continue;
      const std::vector<int>& group = unfolded.graph.groups[static_cast<std::size_t>(node.group)];
      if (group.front() != 0) continue;
      if (group.size() == 2) over.push_back(id);
      if (group.size() == 8 && (!in_actions || node.action.microbatch == 1)) within.push_back(id);
    }
    CAPTURE(in_actions);
    REQUIRE(over.size() == within.size());
    const double gradients = gradient * static_cast<double>(plan.costs.stages.front().parameters);
    REQUIRE(static_cast<double>(over.size()) == (in_actions ? 10 : std::ceil(gradients / 90e6)));  // blocks, or buckets
    Seconds free;
    for (std::size_t i = 0; i < over.size(); ++i) {
      const Seconds ready = std::max(free, times.end[within[i]]);
      if (i + 1 < over.size()) CHECK(times.start[over[i]].value == Approx(ready.value).epsilon(1e-12));
      CHECK(times.start[over[i]].value >= Approx(ready.value).epsilon(1e-12));
      CHECK(unfolded.graph.nodes[over[i]].bytes.value ==
            Approx(static_cast<double>(unfolded.graph.nodes[within[i]].bytes.value) / 7)
                .epsilon(1e-5));  // 2·½ of ⅛ for ⅞
      free = times.end[over[i]];
    }
  }
}

TEST_CASE("when copies are added up changes neither memory nor traffic, and nothing where nothing overlaps") {
  for (const std::string& flags : {by_bucket, by_block}) {
    LayoutCase c = over_copies(flags, "2 GB/s", 2);
    const Timeline beside = predict_by_path(plan_of(c));
    c.software = adding_up(false);
    const Timeline behind = predict_by_path(plan_of(c));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      CHECK(beside.ranks[rank].peak_bytes == behind.ranks[rank].peak_bytes);
      CHECK(beside.ranks[rank].received_bytes == behind.ranks[rank].received_bytes);
      CHECK(beside.ranks[rank].gradient_bytes == behind.ranks[rank].gradient_bytes);
    }
    c.software = "plumb";
    const Plan plain = plan_of(c);
    c.software = "{like: plumb, copies_overlap: true}";
    CHECK(plan_of(c).costs == plain.costs);
  }
}

TEST_CASE("a plan that adds up copies beside the backward is read back, and may not be edited into one that does not") {
  const Plan plan = plan_of(over_copies(by_bucket, "2 GB/s"));
  CHECK(read_back(plan) == plan);
  Plan edited = plan;
  edited.software.copies_overlap = false;
  CHECK_THROWS_AS(require_predicted_costs(edited, "plan.json"), InputError);
  CHECK(to_json(edited).find("copies_overlap") == std::string::npos);
}
