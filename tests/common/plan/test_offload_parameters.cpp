// Plans whose ranks share weights out and have their parts on their hosts: what is there, what the device has, and how
// long an action takes, by ZeRO-Infinity's partitioning and model of bandwidth (arXiv 2104.07857, sections 4 and 6.1).
#include <algorithm>

#include "common/base/text.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string gathered_by_action = ", reshard_after_forward: true, reduce: last_microbatch";

LayoutCase case_by_action(int data, const std::string& rule = "fsdp") {
  return {.nodes = 4, .data = data, .sharding = rule + gathered_by_action};
}

LayoutCase with_offload_of(LayoutCase c, const std::string& offload) {
  c.training += ", offload: " + offload;
  return c;
}

std::string refusal_of_case(const LayoutCase& c) {
  try {
    (void)plan_of(c);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

Plan plan_in_precision(Plan plan, ElementType precision) {
  plan.training.precision = precision;
  plan.boundary = plan_boundary(plan);
  plan.costs = predicted_costs(plan);
  return plan;
}

Plan plan_with_offload(Plan plan, Offload offload) {
  plan.training.offload = offload;
  plan.costs = predicted_costs(plan);
  return plan;
}

// A machine with a port for each device, of this bandwidth.
std::string machine_with_ports(double bandwidth) {
  return "{like: dgx-a100, name: mine, host: {devices_per_link: 1, memory: 100 TiB, link: {latency: 0 us, "
         "bandwidth: " +
         std::to_string(bandwidth / 1e9) + " GB/s}}}";
}

// Each of which brings its weights up in F and B, and in R where there is one.
constexpr int microbatches_of_rank = 16;

}  // namespace

// Every weight here has a multiple of 16 elements.
TEST_CASE("each of n ranks keeps 1/n of the weights on its host, which each F, R and B loads") {
  for (const int data : {2, 8}) {
    for (const std::string rule : {"zero3", "fsdp", "{kind: hsdp, shard: 2}"}) {
      for (const std::string recompute : {"none", "full"}) {
        CAPTURE(data, rule, recompute);
        LayoutCase c = case_by_action(data, rule);
        c.recompute = recompute;
        const Plan here = plan_of(c);
        const Plan there = plan_of(with_offload_of(c, "parameters"));
        const std::int64_t parts = rule.starts_with("{") ? 2 : data;
        const Timeline timeline = predict_by_path(there);
        for (int rank = 0; rank < 2; ++rank) {
          const auto at = static_cast<std::size_t>(rank);
          const std::int64_t own = 2 * here.costs.stages[at].parameters / parts;
          const RankOnHost host = on_host(there.costs.stages, there.schedule, rank);
          const bool redone = there.schedule.actions[at].size() > 2 * microbatches_of_rank;
          CHECK(redone == (recompute == "full"));
          CHECK(here.costs.stages[at].parameter_bytes.value == own);
          CHECK(there.costs.stages[at].parameter_bytes == Bytes{});
          CHECK(host.kept.value == own);
          CHECK(host.up.value == (redone ? 3 : 2) * microbatches_of_rank * own);
          CHECK(host.down.value == own);  // in STEP, of bf16 weights whose master copies are the device's
          CHECK(timeline.ranks[at].host_bytes == host.kept);
          CHECK(timeline.ranks[at].host_copied_bytes == host.down + host.up);
        }
      }
    }
  }
}

// bf16: a host that updates has fp32 weights and moments (12Ψ), gradients (4Ψ) and the weights (2Ψ). fp32: 12Ψ and the
// gradients, the weights among the 12; a device that updates has the moments, and takes weights up and down in STEP.
TEST_CASE("the host's bytes beside the optimizer, and the copies of STEP") {
  const Plan base = plan_of(case_by_action(4));
  for (const bool wide : {false, true}) {
    const Plan here = plan_in_precision(base, wide ? ElementType::fp32 : ElementType::bf16);
    for (const bool optimizer : {false, true}) {
      CAPTURE(wide, optimizer);
      const Plan there = plan_with_offload(here, {.optimizer = optimizer, .parameters = true});
      for (std::size_t stage = 0; stage < 2; ++stage) {
        const std::int64_t part = here.costs.stages[stage].parameters / 4;
        const ComputeCost& cost = there.costs.stages[stage];
        const std::int64_t weight = wide ? 4 : 2;
        CHECK(cost.parameter_moves.up.value == weight * part);
        CHECK(cost.host_moves.kept.value == (optimizer ? (wide ? 16 : 18) : weight) * part);
        CHECK(cost.host_moves.down.value == (optimizer ? 4 : weight) * part);
        CHECK(cost.host_moves.up.value == (wide && !optimizer ? 4 : 0) * part);
        CHECK(cost.optimizer_bytes.value == (optimizer ? 0 : (wide ? 8 : 12)) * part);
        CHECK(cost.parameter_bytes == Bytes{});
      }
    }
  }
}

TEST_CASE("frozen weights go to the host too, and STEP copies adapters alone") {
  LayoutCase c = case_by_action(4);
  c.training = ", lora: {rank: 16, targets: all}";
  const Plan here = plan_of(c);
  const Plan there = plan_of(with_offload_of(c, "parameters"));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const ComputeCost& cost = there.costs.stages[stage];
    CHECK(cost.host_moves.kept == here.costs.stages[stage].parameter_bytes);
    CHECK(cost.parameter_moves.up == here.costs.stages[stage].parameter_bytes);
    // Of bf16 weights; their master copies and moments in fp32 are the device's.
    CHECK(std::int64_t{6} * cost.host_moves.down == cost.optimizer_bytes);
  }
}

TEST_CASE("a tied head on the embedding's stage brings the table up again, and on another one has its own") {
  for (const int pipeline : {1, 2}) {
    LayoutCase c = case_by_action(4);
    c.pipeline = pipeline;
    c.tied = true;
    const Plan here = plan_of(c);
    const Plan there = plan_of(with_offload_of(c, "parameters"));
    constexpr std::int64_t table = 1024 * 1024 * 2 / 4;
    for (std::size_t stage = 0; stage < there.costs.stages.size(); ++stage) {
      const std::int64_t own = here.costs.stages[stage].parameter_bytes.value;
      CHECK(there.costs.stages[stage].host_moves.kept.value == own);
      CHECK(there.costs.stages[stage].parameter_moves.up.value == own + (pipeline == 1 ? table : 0));
    }
  }
}

TEST_CASE("the device has no weights between actions, and what it gathers as before") {
  for (const std::string schedule : {"1f1b", "zb-h1", "{name: interleaved-1f1b, chunks: 2}"}) {
    CAPTURE(schedule);
    LayoutCase c = case_by_action(4);
    c.schedule = schedule;
    // Without messages between ranks, whose memory depends on times.
    c.pipeline = schedule == "zb-h1" ? 2 : schedule == "1f1b" ? 1 : 2;
    const Plan here = plan_of(c);
    const Plan there = plan_of(with_offload_of(c, "parameters"));
    for (std::size_t stage = 0; stage < there.costs.stages.size(); ++stage) {
      const ComputeCost& now = here.costs.stages[stage];
      const ComputeCost& then = there.costs.stages[stage];
      CHECK(then.forward_workspace_bytes == now.forward_workspace_bytes);
      CHECK(backward_workspace(then) == backward_workspace(now));
      CHECK(then.data_moves.gathered == now.data_moves.gathered);
    }
    if (c.pipeline > 1) continue;
    const Bytes own = here.costs.stages.front().parameter_bytes;
    CHECK(memory_by_path(here)[0].peak_bytes - memory_by_path(there)[0].peak_bytes == own);
  }
}

// F: each block's gathering, with its weights' way up before it, beside the block before. A slow link bounds F and B:
// all weights come up one after the other, each beside others' computing and gathering.
TEST_CASE("an action takes its blocks and what of their weights' copies and gatherings is not hidden") {
  for (const double bandwidth : {1e8, 25e9, 1e15}) {
    CAPTURE(bandwidth);
    LayoutCase c = case_by_action(4);
    c.machine = machine_with_ports(bandwidth);
    c.software = "{like: plumb, data_overlap: true}";
    c.nodes = 1;
    c.pipeline = 1;
    const Plan here = plan_of(c);
    const Plan there = plan_of(with_offload_of(c, "parameters"));
    const std::vector<ComputeCost> blocks = blocks_as_split(here);
    const auto moved = [&](std::size_t i) {
      const double own = static_cast<double>(blocks[i].parameter_bytes.value);
      return own / bandwidth + blocks[i].data_moves.gathering.value;
    };
    double forward = moved(0);
    double backward = moved(blocks.size() - 1);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const double next = i + 1 < blocks.size() ? moved(i + 1) : 0;
      const double before = i > 0 ? moved(i - 1) : 0;
      forward += std::max(blocks[i].forward.value, next);
      backward += std::max(backward_time(blocks[i]).value, before);
    }
    const ComputeCost& cost = there.costs.stages.front();
    CHECK(cost.forward.value == Approx(forward));
    CHECK(backward_time(cost).value == Approx(backward));
    if (bandwidth < 1e9) {
      double up = 0;
      for (const ComputeCost& block : blocks) up += static_cast<double>(block.parameter_bytes.value) / bandwidth;
      CHECK(cost.forward.value > up);
      CHECK(cost.forward.value < 1.1 * up);
    }
  }
}

// Section 6.1: all ranks bring their parts up at once, so that a block comes n times as fast.
TEST_CASE("the bandwidth at which weights come up grows with the ranks that share them out, unless they share ports") {
  const auto copying = [](int data, int sharing) {
    LayoutCase c = with_offload_of(case_by_action(data), "parameters");
    c.machine = "{like: dgx-a100, name: mine, host: {devices_per_link: " + std::to_string(sharing) +
                ", link: {latency: 0 us, bandwidth: 20 GB/s}}}";
    return plan_of(c).costs.stages.front().parameter_moves.copying.value;
  };
  CHECK(copying(2, 1) == Approx(4 * copying(8, 1)));
  CHECK(copying(8, 2) == Approx(2 * copying(8, 1)));
  CHECK(copying(8, 8) == Approx(8 * copying(8, 1)));
}

// Section 4.1: with 16-bit weights that F, R and B each load, 2Ψ bytes a time over all ranks, in 8·b·s·Ψ FLOPs, the
// intensity is 4/3·b·s; the paper's b·s also stores gradients. Of all ranks together, whose b sequences share one Ψ.
TEST_CASE("weights that are copied have ZeRO-Infinity's intensity") {
  for (const int data : {2, 8}) {
    LayoutCase c = with_offload_of(case_by_action(data), "parameters");
    c.recompute = "full";
    const Plan plan = plan_of(c);
    for (int rank = 0; rank < 2; ++rank) {
      const RankOnHost own = on_host(plan.costs.stages, plan.schedule, rank);
      const auto parameters = static_cast<double>(plan.costs.stages[static_cast<std::size_t>(rank)].parameters);
      const double flops = 8.0 * data * 512 * parameters;  // of one microbatch of each rank
      const double copied = static_cast<double>(own.up.value) * data / microbatches_of_rank;
      CHECK(flops / copied == Approx(4.0 / 3 * data * 512));
    }
  }
}

// One core copies and computes.
TEST_CASE("on a CPU machine all copies show, whatever goes beside") {
  for (const bool overlap : {false, true}) {
    LayoutCase c = case_by_action(4);
    c.software = "{like: plumb, data_overlap: " + std::string(overlap ? "true}" : "false}");
    Plan here = plan_of(c);
    here.cluster.machine.device.type = DeviceType::cpu;
    here = plan_with_offload(here, {});
    const Plan there = plan_with_offload(here, {.parameters = true});
    for (std::size_t stage = 0; stage < 2; ++stage) {
      const ComputeCost& now = here.costs.stages[stage];
      const ComputeCost& then = there.costs.stages[stage];
      const Seconds copying = then.parameter_moves.copying;
      CHECK(copying > Seconds{});
      // What computes and copies for longer hides more of the gatherings.
      const auto between = [&](Seconds a, Seconds b) {
        CHECK(a.value <= (b + copying).value * (1 + 1e-12));
        CHECK(a > b);
        if (!overlap) CHECK(a.value == Approx((b + copying).value));
      };
      between(then.forward, now.forward);
      between(then.input_gradient, now.input_gradient);
      CHECK((then.optimizer - now.optimizer).value == Approx(then.host_moves.copying_down.value));
    }
    const ScheduleGraph folded = build_graph(lowered_schedule(there), there.costs);
    CHECK(evaluate(unfolded_graph(there, folded).graph).makespan.value ==
          Approx(evaluate(folded).makespan.value).epsilon(1e-9));
  }
}

TEST_CASE("folded ranks whose weights come up take as long as unfolded ones") {
  for (const std::string offload : {"parameters", "optimizer+parameters", "parameters+activations"}) {
    for (const std::string rule : {"fsdp", "{kind: hsdp, shard: 2}"}) {
      for (const bool overlap : {false, true}) {
        for (const int tensor : {1, 2}) {
          for (const std::string schedule : {"1f1b", "zb-h1"}) {
            CAPTURE(offload, rule, overlap, tensor, schedule);
            LayoutCase c{.nodes = 2,
                         .tensor = tensor,
                         .data = 4,
                         .schedule = schedule,
                         .software = "{like: plumb, data_overlap: " + std::string(overlap ? "true}" : "false}"),
                         .sharding = rule + ", reshard_after_forward: true, reduce: each_microbatch"};
            const Plan plan = plan_of(with_offload_of(c, offload));
            const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
            const Seconds step = evaluate(folded).makespan;
            CHECK(evaluate(unfolded_graph(plan, folded).graph).makespan.value == Approx(step.value).epsilon(1e-9));
            CHECK(step > predict_by_path(plan_of(c)).steps.front().duration);
          }
        }
      }
    }
  }
}

TEST_CASE("an action's event has what it brings up, STEP's what it copies") {
  LayoutCase c = with_offload_of(case_by_action(4), "parameters");
  c.recompute = "full";
  const Plan plan = plan_of(c);
  const Timeline timeline = predict_by_path(plan);
  int actions = 0;
  for (const Event& event : timeline.steps.front().events) {
    const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(std::max(0, event.action.stage))];
    if (event.action.kind == ActionKind::optimizer_step) CHECK(event.bytes == cost.host_moves.down);
    if (!is_compute(event.action.kind)) continue;
    CHECK(event.bytes == cost.parameter_moves.up);
    CHECK(event.waited == cost.parameter_moves.copying);
    ++actions;
  }
  CHECK(actions == 2 * 3 * microbatches_of_rank);
}

TEST_CASE("a plan with weights on the host is read back as it was, and an edited one refused") {
  const Plan plan = plan_of(with_offload_of(case_by_action(4), "parameters"));
  CHECK(read_back(plan) == plan);
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].parameter_moves.up = {1}; }),
             ContainsSubstring("costs.stages[0]") && ContainsSubstring("other states or weights on its host"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.training.offload = {}; }),
             ContainsSubstring("other states or weights on its host than training.offload, none"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].parameter_bytes = {1}; }),
             ContainsSubstring("costs.stages[0].parameter_bytes") && ContainsSubstring("expected 0"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.layout.data.reshard_after_forward = false; }),
             ContainsSubstring("training.offload") && ContainsSubstring("each action must gather its own weights"));
}

TEST_CASE("layouts that cannot offload weights are refused by name") {
  for (const std::string rule : {"none", "zero1", "zero2"}) {
    CHECK_THAT(refusal_of_case(with_offload_of({.nodes = 4, .data = 4, .sharding = rule}, "parameters")),
               ContainsSubstring("only sharded weights can be offloaded") && ContainsSubstring("sharding: fsdp") &&
                   ContainsSubstring("zero3"));
  }
  CHECK_THAT(
      refusal_of_case(
          with_offload_of({.nodes = 4, .data = 4, .sharding = "fsdp, reshard_after_forward: false"}, "parameters")),
      ContainsSubstring("each action must gather its own weights") && ContainsSubstring("reshard_after_forward: true"));
  CHECK_THAT(refusal_of_case(with_offload_of({.nodes = 4,
                                              .data = 4,
                                              .sharding = "fsdp, reshard_after_forward: true, "
                                                          "quantized_weights: true"},
                                             "optimizer+parameters")),
             ContainsSubstring("ZeRO++") && ContainsSubstring("sharding: zero3"));
  LayoutCase small = with_offload_of(case_by_action(4), "parameters");
  small.machine = "{like: dgx-a100, name: small, host: {memory: 1 MB}}";
  CHECK_THAT(refusal_of_case(small), ContainsSubstring("offload of parameters: rank ") &&
                                         ContainsSubstring("on its host, of which it") &&
                                         ContainsSubstring("more ranks that share"));
}

TEST_CASE("the predicted gain of offloading parameters equals the real one") {
  LayoutCase c = case_by_action(4);
  c.pipeline = 1;
  const Plan here = plan_of(c);
  const Plan there = plan_of(with_offload_of(c, "parameters"));
  const std::vector<OffloadChoice> choices = offload_choices(here, 0);
  REQUIRE(choices.size() == 3);
  CHECK(choices[0].offload == Offload{.optimizer = true});
  CHECK(choices[1].offload == Offload{.parameters = true});
  CHECK(choices[1].freed == memory_by_path(here)[0].peak_bytes - memory_by_path(there)[0].peak_bytes);
  CHECK(choices[1].on_host == on_host(there.costs.stages, there.schedule, 0).kept);
  CHECK(choices[2].offload == Offload{.activations = true});
  for (const OffloadChoice& more : offload_choices(there, 0)) CHECK(more.offload.parameters);
  for (const OffloadChoice& other : offload_choices(plan_of({.pipeline = 1}), 0)) CHECK_FALSE(other.offload.parameters);
}
