// Plans whose activations stand on the host between F and I or B: what is there, what the device has, and how long an
// action takes, by ZeRO-Infinity's model of bandwidth (arXiv 2104.07857, section 4).
#include <algorithm>
#include <set>

#include "common/base/text.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

LayoutCase with_activations_there(LayoutCase c) {
  c.training += ", offload: activations";
  return c;
}

// Microbatches of each stage that one rank has between F and I or B, at most, and how many F it has: counted along its
// list.
struct CountedOnHost {
  std::int64_t most_bytes = 0;
  std::int64_t down = 0;
};
CountedOnHost counted_on_host(const Schedule& schedule, int rank, const std::vector<ComputeCost>& kept_here) {
  CountedOnHost counted;
  std::int64_t now = 0;
  for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
    const std::int64_t kept = kept_here[static_cast<std::size_t>(action.stage)].kept_bytes.value;
    if (action.kind == ActionKind::forward) now += kept;
    if (action.kind == ActionKind::forward) counted.down += kept;
    counted.most_bytes = std::max(counted.most_bytes, now);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::input_gradient) now -= kept;
  }
  return counted;
}

}  // namespace

TEST_CASE("the host has what the device would keep of the microbatches under way, and each goes down and up once") {
  for (const std::string schedule :
       {"1f1b", "gpipe", "zb-h1", "zb-v", "{name: interleaved-1f1b, chunks: 2}", "dualpipe"}) {
    CAPTURE(schedule);
    const LayoutCase c{.pipeline = 4, .schedule = schedule};
    const Plan here = plan_of(c);
    const Plan there = plan_of(with_activations_there(c));
    const Timeline timeline = predict_by_path(there);
    for (int rank = 0; rank < 4; ++rank) {
      const CountedOnHost counted = counted_on_host(here.schedule, rank, here.costs.stages);
      const RankOnHost own = on_host(there.costs.stages, there.schedule, rank);
      CHECK(own.kept.value == counted.most_bytes);
      CHECK(own.down.value == counted.down);
      CHECK(own.up == own.down);
      CHECK(timeline.ranks[static_cast<std::size_t>(rank)].host_bytes == own.kept);
      CHECK(timeline.ranks[static_cast<std::size_t>(rank)].host_copied_bytes == own.down + own.up);
    }
    for (const ComputeCost& cost : there.costs.stages) CHECK(cost.kept_bytes == Bytes{});
    for (const ComputeCost& cost : here.costs.stages) CHECK(cost.activation_moves == ActivationMoves{});
  }
}

// Of a stage in F: a block, and the one before it on its way; in B: a block, and the next to work on its way. Between
// actions the device has no activations at all.
TEST_CASE("the device has two blocks' worth of one microbatch, whatever number is under way") {
  const LayoutCase c{.pipeline = 2};
  const Plan here = plan_of(c);
  const Plan there = plan_of(with_activations_there(c));
  const std::vector<ComputeCost> blocks = blocks_as_split(here);
  for (int stage = 0; stage < 2; ++stage) {
    const auto own = stage_blocks(blocks, here.split, stage);
    Bytes forward;
    Bytes backward;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Bytes moving = own[i].kept_bytes + (i > 0 ? own[i - 1].kept_bytes : Bytes{});
      forward = std::max(forward, moving + own[i].forward_workspace_bytes);
      backward = std::max(backward, moving + backward_workspace(own[i]));
    }
    const ComputeCost& cost = there.costs.stages[static_cast<std::size_t>(stage)];
    CHECK(cost.forward_workspace_bytes == forward);
    CHECK(backward_workspace(cost) == backward);
    const Bytes most = std::max(forward, backward);
    const RankMemory memory = memory_by_path(there)[static_cast<std::size_t>(stage)];
    CHECK(memory.peak.held.kept == Bytes{});
    CHECK(memory.peak.held.workspace <= most);
    CHECK(memory.peak_bytes < memory_by_path(here)[static_cast<std::size_t>(stage)].peak_bytes);
  }
}

// What W needs after I stays on the device.
TEST_CASE("with I and W apart activations are back before I, and what W needs stays") {
  const LayoutCase c{.pipeline = 2, .schedule = "zb-h1"};
  const Plan here = plan_of(c);
  const Plan there = plan_of(with_activations_there(c));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const ComputeCost& now = here.costs.stages[stage];
    const ComputeCost& then = there.costs.stages[stage];
    CHECK(then.kept_for_weight_bytes == now.kept_for_weight_bytes);
    CHECK(then.weight_gradient == now.weight_gradient);
    CHECK(then.weight_gradient_workspace_bytes == now.weight_gradient_workspace_bytes);
    CHECK(then.activation_moves.kept == now.kept_bytes);
    CHECK(then.forward > now.forward);
    CHECK(then.input_gradient > now.input_gradient);
  }
}

// Section 4.1: of 16-bit checkpoints behind each layer (ci = 1) of a batch of b sequences of s tokens go 2·2·b·s·h
// bytes a layer, in steps of 8·b·s·12·h² FLOPs with F, R and B: ait = 24·h.
TEST_CASE("checkpoints that are copied have ZeRO-Infinity's intensity, 24 times the hidden size") {
  const LayoutCase c =
      with_activations_there({.pipeline = 1, .software = "{like: plumb, recompute_unit: layer}", .recompute = "full"});
  const Plan plan = plan_of(c);
  const std::vector<ComputeCost> blocks = blocks_as_split(plan);
  const double hidden = 1024;
  const double tokens = 512;
  for (std::size_t layer = 1; layer + 1 < blocks.size(); ++layer) {
    const double flops = 8 * tokens * 12 * hidden * hidden;
    const auto copied = static_cast<double>(2 * blocks[layer].activation_moves.kept.value);
    CHECK(flops / copied == Approx(24 * hidden));
  }
}

// With a link so slow that copies bound F and B: the layers' checkpoints one after the other, behind the embedding.
TEST_CASE("a slow link bounds F and B, a fast one is hidden but for one block") {
  for (const double bandwidth : {1e8, 1e15}) {
    CAPTURE(bandwidth);
    LayoutCase c{.machine =
                     "{like: dgx-a100, name: mine, host: {devices_per_link: 1, memory: 100 TiB, link: {latency: "
                     "0 us, bandwidth: " +
                     std::to_string(bandwidth / 1e9) + " GB/s}}}",
                 .pipeline = 1};
    const Plan here = plan_of(c);
    const Plan there = plan_of(with_activations_there(c));
    const std::vector<ComputeCost> blocks = blocks_as_split(here);
    const ComputeCost& cost = there.costs.stages.front();
    const auto copy = [&](const ComputeCost& block) { return static_cast<double>(block.kept_bytes.value) / bandwidth; };
    double copied = 0;
    for (const ComputeCost& block : blocks) copied += copy(block);
    const ComputeCost& all = here.costs.stages.front();
    const double last = copy(blocks.back());
    if (bandwidth > 1e14) {
      CHECK(cost.forward.value == Approx(all.forward.value + last));
      CHECK(backward_time(cost).value == Approx(backward_time(all).value + last));
      continue;
    }
    // The embedding keeps next to nothing, which hides behind the first layer.
    const double first = copy(blocks[0]);
    const double behind = copied - first;
    CHECK(cost.forward.value == Approx((blocks[0].forward + blocks[1].forward).value + behind));
    CHECK(backward_time(cost).value == Approx((backward_time(blocks[0]) + backward_time(blocks[1])).value + behind));
    CHECK(first < blocks[1].forward.value);
  }
}

TEST_CASE("folded ranks that copy activations take as long as unfolded ones, beside what data ranks move") {
  for (const std::string sharding :
       {"none", "zero1", "fsdp, reshard_after_forward: true, reduce: each_microbatch", "zero2"}) {
    for (const bool overlap : {false, true}) {
      for (const int tensor : {1, 2}) {
        for (const std::string schedule : {"1f1b", "zb-h1"}) {
          CAPTURE(sharding, overlap, tensor, schedule);
          const LayoutCase c{.nodes = 2,
                             .tensor = tensor,
                             .data = 4,
                             .schedule = schedule,
                             .software = "{like: plumb, data_overlap: " + std::string(overlap ? "true}" : "false}"),
                             .sharding = sharding};
          const Plan plan = plan_of(with_activations_there(c));
          const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
          const Seconds step = evaluate(folded).makespan;
          CHECK(evaluate(unfolded_graph(plan, folded).graph).makespan.value == Approx(step.value).epsilon(1e-9));
          CHECK(step > predict_by_path(plan_of(c)).steps.front().duration);
        }
      }
    }
  }
}

TEST_CASE("with some layers redone what is left of the others goes to the host") {
  const LayoutCase c{.pipeline = 2, .recompute = "{layers: 2}"};
  const Plan here = plan_of(c);
  const Plan there = plan_of(with_activations_there(c));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    CHECK(there.costs.stages[stage].kept_bytes == Bytes{});
    CHECK(there.costs.stages[stage].activation_moves.kept == here.costs.stages[stage].kept_bytes);
  }
  CHECK(read_back(there) == there);
}

TEST_CASE("an action's event has what it copies, one way") {
  const Plan plan = plan_of(with_activations_there({.pipeline = 2}));
  const Timeline timeline = predict_by_path(plan);
  int actions = 0;
  for (const Event& event : timeline.steps.front().events) {
    if (!copies_activations(event.action.kind)) continue;
    const ActivationMoves& moves = plan.costs.stages[static_cast<std::size_t>(event.action.stage)].activation_moves;
    CHECK(event.bytes == moves.kept);
    CHECK(event.waited == moves.copying);
    ++actions;
  }
  CHECK(actions == 2 * 2 * 16);
}

TEST_CASE("a plan with activations on the host is read back as it was, and an edited one refused") {
  const Plan plan = plan_of(with_activations_there({.pipeline = 2}));
  CHECK(read_back(plan) == plan);
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].kept_bytes = {1}; }),
             ContainsSubstring("costs.stages[0].kept_bytes") && ContainsSubstring("expected 0"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.training.offload.activations = false; }),
             ContainsSubstring("costs.stages[0]") && ContainsSubstring("keeps activations on its host"));
  CHECK_THAT(message_after(plan_of({.pipeline = 2}), [](Plan& p) { p.training.offload.activations = true; }),
             ContainsSubstring("costs.stages[0]") && ContainsSubstring("keeps activations on its device"));
}

TEST_CASE("layouts that cannot offload activations are refused by name") {
  const auto message = [](LayoutCase c) {
    try {
      (void)plan_of(with_activations_there(std::move(c)));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(message({.recompute = "full"}),
             ContainsSubstring("R makes them anew") && ContainsSubstring("recompute_unit: layer"));
  CHECK_THAT(message({.schedule = "{name: seq-1f1b, slices: 2}"}), ContainsSubstring("slices hand some of them on"));
  CHECK_THAT(message({.pipeline = 4, .schedule = "bpipe"}), ContainsSubstring("evicts activations: bpipe"));
  CHECK_THAT(message({.schedule = "zb-auto"}), ContainsSubstring("made for times: zb-auto"));
  CHECK_THAT(message({.schedule = "pipedream"}), ContainsSubstring("updates weights within a step: pipedream"));
  CHECK_THAT(message({.machine = "{like: dgx-a100, name: small, host: {memory: 100 MB}}"}),
             ContainsSubstring("offload of activations: rank ") && ContainsSubstring("on its host, of which it") &&
                 ContainsSubstring("a smaller microbatch"));
}

TEST_CASE("the predicted gain of offloading activations equals the real one") {
  const Plan here = plan_of({.pipeline = 2});
  const Plan there = plan_of(with_activations_there({.pipeline = 2}));
  const std::vector<OffloadChoice> choices = offload_choices(here, 0);
  REQUIRE(choices.size() == 2);
  CHECK(choices.front().offload == Offload{.optimizer = true});
  CHECK(choices.back().offload == Offload{.activations = true});
  CHECK(choices.back().freed == memory_by_path(here)[0].peak_bytes - memory_by_path(there)[0].peak_bytes);
  CHECK(choices.back().on_host == on_host(there.costs.stages, there.schedule, 0).kept);
  const std::vector<OffloadChoice> more = offload_choices(there, 0);
  REQUIRE(more.size() == 1);
  CHECK(more.front().offload == Offload{.optimizer = true, .activations = true});
}
