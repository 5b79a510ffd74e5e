// Plans whose optimizer states stand on the host: bytes and times by the formulas of ZeRO-Offload (arXiv 2101.06840)
// and ZeRO-Infinity (arXiv 2104.07857).
#include <algorithm>

#include "common/base/text.hpp"
#include "common/cluster/machine_numbers.hpp"
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

// The same plan with its states on the device, and on the host.
struct Both {
  Plan here;
  Plan there;
};
Both both(LayoutCase c) {
  Both plans{.here = plan_of(c), .there = {}};
  c.training += ", offload: optimizer";
  plans.there = plan_of(c);
  return plans;
}

std::int64_t parameters_of(const Plan& plan) {
  std::int64_t sum = 0;
  for (const ComputeCost& cost : plan.costs.stages) sum += cost.parameters;
  return sum;
}

Bytes peak_without_states(const Plan& plan, int rank) {
  return memory_by_path(plan).at(static_cast<std::size_t>(rank)).peak_bytes;
}

}  // namespace

// Section 3: 16-bit gradients go down (2Ψ) and weights come up (2Ψ); the host has fp32 weights and moments (12Ψ) and
// the gradients. Of n ranks that share states out each has a part; every weight here has a multiple of 16 elements.
TEST_CASE("offload copies 2Ψ each way, and the host keeps 12Ψ and the gradients, divided by n") {
  for (const int data : {1, 2, 8}) {
    for (const std::string sharding : {"zero1", "zero2", "fsdp"}) {
      CAPTURE(data, sharding);
      const Both plans = both({.nodes = 4,
                               .data = data,
                               .software = "{like: plumb, gradients: bf16}",
                               .sharding = data == 1 ? "none" : sharding});
      const double psi = static_cast<double>(parameters_of(plans.there));
      Bytes kept;
      Bytes down;
      Bytes up;
      for (int rank = 0; rank < 2; ++rank) {
        const RankOnHost own = on_host(plans.there.costs.stages, plans.there.schedule, rank);
        kept += own.kept;
        down += own.down;
        up += own.up;
      }
      CHECK(static_cast<double>(down.value) == 2 * psi / data);
      CHECK(static_cast<double>(up.value) == 2 * psi / data);
      CHECK(static_cast<double>(kept.value) == 14 * psi / data);
      for (const ComputeCost& cost : plans.there.costs.stages) CHECK(cost.optimizer_bytes == Bytes{});
      for (const ComputeCost& cost : plans.here.costs.stages) CHECK(cost.host_moves == HostMoves{});
    }
  }
}

// Nothing moves before STEP, so memory over time is as without, but for the states.
TEST_CASE("a rank's peak is smaller by its states, under every kind of schedule") {
  for (const std::string schedule : {"1f1b", "zb-h1", "{name: interleaved-1f1b, chunks: 2}", "dualpipe"}) {
    CAPTURE(schedule);
    const Both plans = both({.nodes = 1, .schedule = schedule});
    for (int rank = 0; rank < 2; ++rank) {
      Bytes states;
      for (const int stage : stages_of_rank(plans.here.schedule, rank)) {
        states += plans.here.costs.stages[static_cast<std::size_t>(stage)].optimizer_bytes;
      }
      CHECK(states > Bytes{});
      CHECK(peak_without_states(plans.here, rank) - peak_without_states(plans.there, rank) == states);
    }
    const Timeline timeline = predict_by_path(plans.there);
    for (int rank = 0; rank < 2; ++rank) {
      const RankOnHost own = on_host(plans.there.costs.stages, plans.there.schedule, rank);
      CHECK(timeline.ranks[static_cast<std::size_t>(rank)].host_bytes == own.kept);
      CHECK(timeline.ranks[static_cast<std::size_t>(rank)].host_copied_bytes == own.down + own.up);
    }
  }
}

TEST_CASE("a step of the host shows in the timeline as what its STEP copies, and folded ranks as unfolded ones") {
  const Both plans = both({.nodes = 1, .data = 2, .sharding = "zero1"});
  const Timeline timeline = predict_by_path(plans.there);
  int steps = 0;
  for (const Event& event : timeline.steps.front().events) {
    if (event.action.kind != ActionKind::optimizer_step) continue;
    const HostMoves& moves = plans.there.costs.stages[static_cast<std::size_t>(event.action.stage)].host_moves;
    CHECK(event.bytes == moves.down + moves.up);
    CHECK(event.waited == moves.copying_down + moves.copying_up);
    CHECK(event.end - event.start > std::max(moves.updating, moves.copying_down));
    ++steps;
  }
  CHECK(steps == 2);
  const ScheduleGraph folded = build_graph(lowered_schedule(plans.there), plans.there.costs);
  CHECK(evaluate(unfolded_graph(plans.there, folded).graph).makespan.value ==
        Approx(evaluate(folded).makespan.value).epsilon(1e-9));
  CHECK(predict_by_path(plans.there).steps.front().duration > predict_by_path(plans.here).steps.front().duration);
}

// A port that devices share, all of which copy at once.
TEST_CASE("devices that share a port have an even part of it each") {
  const auto copying = [](int sharing) {
    const Plan plan =
        plan_of({.machine = "{like: dgx-a100, name: mine, host: {devices_per_link: " + std::to_string(sharing) +
                            ", link: {latency: 0 us, bandwidth: 20 GB/s}}}",
                 .pipeline = 4,
                 .training = ", offload: optimizer"});
    return plan.costs.stages.front().host_moves.copying_down;
  };
  CHECK(copying(2).value == Approx(2 * copying(1).value));
  CHECK(copying(4).value == Approx(4 * copying(1).value));
  CHECK(copying(8).value == Approx(4 * copying(1).value));  // there are four ranks
}

// Section 4.2 of ZeRO-Infinity: efficiency = ait·bw / (ait·bw + peak), with ait = s·batch/4 of optimizer states: full
// recompute's 8·b·s·Ψ FLOPs over 2·16·Ψ bytes, nothing beside each other. Here the gradients of these 16 bytes a
// parameter are read and not written, and 16-bit weights written: 30 bytes, so ait = 8·b·s/30.
TEST_CASE("the efficiency is ZeRO-Infinity's where the host's memory bounds it") {
  constexpr double peak = 70e12;
  for (const double bandwidth : {50e9, 250e9, 1230e9}) {
    for (const int batch : {1, 2, 8}) {
      CAPTURE(bandwidth, batch);
      const Scenario scenario = read_text(
          "model: {vocabulary: 128, hidden: 8192, heads: 64, layers: \"full/dense*2\", ffn: 32768, norm: layernorm, "
          "activation: gelu}\n"
          "cluster: {machine: {like: dgx-2-v100, name: ideal, devices: 1, nics: 1, device: {peak: {bf16: 70 TFLOP/s}, "
          "matmul_efficiency: 1, matmul_depth: 0, kernel_gap: 0 us, launch_time: 0 us, attention_efficiency: 1, "
          "memory: 100 TiB, memory_bandwidth: 100000 TB/s}, host: {devices_per_link: 1, memory: 100 TiB, "
          "link: {latency: 0 us, bandwidth: 100000 TB/s}, memory_bandwidth: " +
          std::to_string(bandwidth / 1e9) +
          " GB/s}}}\n"
          "training: {sequence: 1024, precision: bf16, recompute: full, offload: optimizer, global_batch: " +
          std::to_string(batch) + ", microbatch: " + std::to_string(batch) + "}\n");
      Plan plan = make_plan(scenario, only_choice(scenario));
      const double step = predict_by_path(plan).steps.front().duration.value;
      plan.training.offload = {};
      plan.costs = predicted_costs(plan);
      const double computing = predict_by_path(plan).steps.front().duration.value;
      // What tiles and attention leave of the peak.
      const double reached = 8.0 * batch * 1024 * static_cast<double>(parameters_of(plan)) / computing;
      CHECK(reached == Approx(peak).epsilon(0.15));
      const double ait = 8.0 * batch * 1024 / 30;
      CHECK(computing / step == Approx(ait * bandwidth / (ait * bandwidth + reached)).epsilon(1e-3));
    }
  }
}

TEST_CASE("a step is never shorter than its bound, and its sums are the blocks'") {
  const Plan plan = plan_of({.nodes = 1, .training = ", offload: optimizer"});
  const std::vector<ComputeCost> blocks = blocks_as_split(plan);
  for (int stage = 0; stage < 2; ++stage) {
    HostMoves sum;
    for (const ComputeCost& block : stage_blocks(blocks, plan.split, stage)) sum += block.host_moves;
    const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
    CHECK(cost.host_moves.kept == sum.kept);
    CHECK(cost.optimizer >= std::max({sum.updating, sum.copying_down, sum.copying_up}));
    CHECK(cost.optimizer < sum.updating + sum.copying_down + sum.copying_up + cost.forward);
  }
}

TEST_CASE("a plan that offloads is read back as it was, and an edited one refused") {
  const Plan plan = plan_of({.nodes = 1, .training = ", offload: optimizer"});
  CHECK(read_back(plan) == plan);
  CHECK_THAT(message_after(plan, [](Plan& p) { p.costs.stages[0].host_moves.kept = {1}; }),
             ContainsSubstring("costs.stages[0]") && ContainsSubstring("other states or weights on its host"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.training.offload = {}; }),
             ContainsSubstring("other states or weights on its host than training.offload, none"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.cluster.machine.host = {}; }),
             ContainsSubstring("cluster.machine") || ContainsSubstring("training.offload"));
  CHECK_THAT(message_after(plan, [](Plan& p) { p.cluster.machine.host.devices_per_link = 3; }),
             ContainsSubstring("cluster.machine.host.devices_per_link: is 3, which does not divide the 8 devices"));
}

TEST_CASE("a host without room is refused with the rank, what it keeps and what there is") {
  CHECK_THROWS_WITH(
      plan_of({.machine = "{like: dgx-a100, name: small, host: {memory: 100 MB}}", .training = ", offload: optimizer"}),
      ContainsSubstring("offload of optimizer: rank ") && ContainsSubstring("on its host, of which it") &&
          ContainsSubstring(to_text(Bytes{100'000'000})) && ContainsSubstring("too much"));
  CHECK_THROWS_WITH(plan_of({.schedule = "pipedream", .training = ", offload: optimizer"}),
                    ContainsSubstring("updates weights within a step: pipedream"));
}

TEST_CASE("the predicted gain of offloading equals the real one") {
  const Both plans = both({.nodes = 1});
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<OffloadChoice> choices = offload_choices(plans.here, rank);
    REQUIRE(!choices.empty());
    const OffloadChoice& choice = choices.front();
    CHECK(choice.offload == Offload{.optimizer = true});
    CHECK(choice.freed == peak_without_states(plans.here, rank) - peak_without_states(plans.there, rank));
    CHECK(choice.on_host == on_host(plans.there.costs.stages, plans.there.schedule, rank).kept);
  }
  for (const OffloadChoice& more : offload_choices(plans.there, 0)) CHECK(more.offload.activations);
}

TEST_CASE("the host's numbers move a step that offloads, and no other") {
  const auto names = [](const std::vector<MachineNumber>& numbers) {
    return std::ranges::count_if(numbers, [](const MachineNumber& number) { return is_of_host(number.name); });
  };
  const Both plans = both({.nodes = 1});
  CHECK(names(numbers_of(plans.here.cluster.machine)) == 0);
  CHECK(names(numbers_of(plans.there.cluster.machine, true)) == 3);
  for (const std::string name : {"host.link.bandwidth", "host.memory_bandwidth"}) {
    const auto step_with = [&](Plan plan, double factor) {
      set_machine_number(plan.cluster.machine, name, machine_number(plan.cluster.machine, name) * factor);
      plan.costs = predicted_costs(plan);
      return predict_by_path(plan).steps.front().duration;
    };
    CAPTURE(name);
    CHECK(step_with(plans.there, 0.1) > step_with(plans.there, 1));
    CHECK(step_with(plans.here, 0.1) == step_with(plans.here, 1));
  }
}
