// All ranks through SimGrid: as the pipeline's ranks where nothing contends but what they stand for, else slower.
#include <algorithm>
#include <array>
#include <random>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/sim/made_up_machine.hpp"
#include "tests/sim/step_seconds.hpp"

using namespace plumb;
using namespace plumb::testing;
using tests::folded_seconds;
using tests::unfolded_seconds;

namespace {

// Eight devices, four under each of two switches whose uplinks and one NIC they share.
const std::string unfolded_pcie_box = tests::made_up_machine(
    "name: box, devices: 8, nics: 1, devices_per_switch: 4, uplink: {value: 20 GB/s, source: made up}", "20 GB/s");

}  // namespace

TEST_CASE("all ranks through SimGrid take as long as the pipeline's where nothing else contends") {
  for (const char* software : {"plumb", "megatron-2021", "megatron-2022"}) {  // asynchronous, synchronous twice
    for (const char* schedule : {"gpipe", "1f1b", "{name: interleaved-1f1b, chunks: 2}", "zb-h1"}) {
      for (const LayoutCase& layout :
           {LayoutCase{.nodes = 4, .pipeline = 4, .tensor = 8},
            LayoutCase{.nodes = 2, .pipeline = 2, .tensor = 8, .sequence_parallel = true},
            LayoutCase{.nodes = 2, .pipeline = 2, .tensor = 8, .sequence_parallel = true, .asynchronous = true},
            LayoutCase{.nodes = 1, .pipeline = 1, .tensor = 4, .data = 2},
            LayoutCase{.nodes = 2, .tensor = 8, .kind = "3d", .microbatch = 4},
            LayoutCase{.nodes = 2, .pipeline = 1, .tensor = 16, .kind = "2d", .microbatch = 4},
            LayoutCase{.nodes = 2, .pipeline = 1, .tensor = 16, .kind = "2d", .microbatch = 4, .asynchronous = true}}) {
        if (layout.pipeline == 1 && std::string(schedule) != "1f1b") continue;
        LayoutCase c = layout;
        c.software = software;
        c.schedule = schedule;
        INFO(software << " " << schedule << " pp" << c.pipeline);
        const Plan plan = plan_of(c);
        CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("ranks of one stage that share NICs and uplinks have what their folded one has") {
  for (const std::string& machine : {std::string("dgx-a100-4nic"), unfolded_pcie_box}) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      const Plan plan = plan_of({.machine = machine, .nodes = 4, .pipeline = 4, .tensor = 8, .schedule = schedule});
      const bool box = machine == unfolded_pcie_box;
      INFO(machine << " " << schedule);
      if (!box) CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-6));
      // The rings through the uplinks meet the messages there.
      if (box) CHECK(unfolded_seconds(plan) >= folded_seconds(plan) * (1 - 1e-6));
    }
  }
}

TEST_CASE("weights that actions gather, and gradients that they reduce, are flows beside computing, folded or not") {
  for (const char* sharding : {"fsdp", "zero2", "{kind: hsdp, shard: 8}", "fsdp, reshard_after_forward: false"}) {
    for (const char* overlap :
         {"data_overlap: false", "data_overlap: true", "data_overlap: true, copies_overlap: true"}) {
      LayoutCase c{.nodes = 2, .pipeline = 1, .data = 16, .batch = 2, .sharding = sharding};
      c.software = "{like: plumb, " + std::string(overlap) + "}";
      INFO(sharding << " " << overlap);
      const Plan plan = plan_of(c);
      CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-6));
    }
  }
}

TEST_CASE("a reduction of all devices over two machines takes what its NICs or switches pass, folded or not") {
  for (const std::string& machine : {std::string("dgx-a100"), std::string("dgx-a100-4nic"), unfolded_pcie_box}) {
    const Plan plan = plan_of({.machine = machine, .nodes = 2, .pipeline = 1, .tensor = 1, .data = 16, .batch = 1});
    INFO(machine);
    CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-6));
  }
}

TEST_CASE("half the NICs make reductions between machines twice as long") {
  const auto reduction = [](const std::string& machine) {
    const Plan plan = plan_of({.machine = machine, .nodes = 2, .pipeline = 1, .tensor = 8, .data = 2, .batch = 1});
    const Machine& m = plan.cluster.machine;
    const double alpha = (m.collective_latency.value + m.collective_latency_per_rank.value * 2.0).value;
    const double time = plan.costs.stages[0].gradient_reduction.value;
    CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-9));
    return time - alpha;
  };
  CHECK(reduction("dgx-a100-4nic") == Approx(2 * reduction("dgx-a100")).epsilon(1e-9));
}

TEST_CASE("messages of the pipeline and reductions of its stages meet at the NICs only where all ranks are simulated") {
  const Plan plan = plan_of({.nodes = 4, .pipeline = 2, .tensor = 8, .data = 2, .batch = 4});
  const double folded = folded_seconds(plan);
  const double unfolded = unfolded_seconds(plan);
  // The last stage's gradients leave together with the message that the first stage waits for: that has half of the
  // NIC, and so comes later by its own time on the wire.
  const double message = (plan.costs.boundary_bytes / plan.costs.outside.bandwidth).value;
  CHECK(unfolded == Approx(folded + message).epsilon(1e-6));
}

TEST_CASE("leaves with fewer uplinks and a thin link between sites slow the ranks of a stage alike, folded or not") {
  for (const char* network :
       {", nodes_per_leaf: 1, oversubscription: 4", ", sites: {nodes: 2, bandwidth: 5 GB/s, latency: 3 ms}"}) {
    INFO(network);
    const Plan plain = plan_of({.nodes = 4, .pipeline = 4, .tensor = 8});
    LayoutCase c{.nodes = 4, .pipeline = 4, .tensor = 8};
    c.network = network;
    const Plan plan = plan_of(c);
    CHECK(unfolded_seconds(plan) == Approx(folded_seconds(plan)).epsilon(1e-6));
    CHECK(folded_seconds(plan) > folded_seconds(plain) * 1.001);
    // And a reduction over two of them.
    LayoutCase d{.nodes = 4, .pipeline = 1, .tensor = 8, .data = 4, .batch = 1};
    d.network = network;
    const Plan reducing = plan_of(d);
    CHECK(unfolded_seconds(reducing) == Approx(folded_seconds(reducing)).epsilon(1e-6));
  }
}

namespace {

constexpr std::array orders{"tensor, data, pipeline", "pipeline, tensor, data", "data, tensor, pipeline",
                            "tensor, pipeline, data", "pipeline, data, tensor", "data, pipeline, tensor"};

LayoutCase random_layout(std::mt19937& random) {
  const auto one_of = [&](const auto& all) { return all[random() % all.size()]; };
  LayoutCase c{.machine = one_of(std::array<std::string, 3>{"dgx-a100", "dgx-a100-4nic", unfolded_pcie_box}),
               .pipeline = one_of(std::array{1, 2, 4, 8}),
               .tensor = one_of(std::array{2, 4, 8, 16}),
               .data = one_of(std::array{1, 1, 2}),
               .sequence_parallel = random() % 2 == 0,
               .schedule = one_of(std::array<std::string, 3>{"1f1b", "gpipe", "zb-h1"}),
               .software = one_of(std::array<std::string, 2>{"plumb", "megatron-2022"}),
               .batch = 8};
  c.order = one_of(orders);
  c.nodes = (c.pipeline * c.tensor * c.data + 7) / 8;
  return c;
}

}  // namespace

// What one rank per stage says must not be faster than what all ranks take: it would be chosen for that.
TEST_CASE("tensor groups that share NICs or uplinks with those of other stages are no faster folded than unfolded") {
  std::mt19937 random(7);
  int shared = 0;
  for (int round = 0; round < 60; ++round) {
    const LayoutCase c = random_layout(random);
    const Plan plan = plan_of(c);
    const GroupPlacement group = tensor_placement(plan.layout, plan.cluster);
    const GroupPlacement of_stage = placement(plan.layout, MeshAxis::tensor, plan.cluster);
    const auto time = [&](const GroupPlacement& placed) {
      return collective_time(plan.cluster.machine, Collective::all_reduce, 1e8, placed).value;
    };
    const bool inside = group.per_machine == group.ranks;
    INFO(c.machine.substr(0, 16) << " " << describe(plan.layout) << ", " << c.order << " " << c.schedule << " "
                                 << c.software);
    // In a machine there is nothing to share but uplinks.
    if (inside && plan.cluster.machine.devices_per_switch == 0) CHECK(time(group) == time(of_stage));
    CHECK(time(group) >= time(of_stage));
    if (inside && time(group) == time(of_stage)) continue;
    const double folded = folded_seconds(plan);
    const double unfolded = unfolded_seconds(plan);
    CHECK(folded >= 0.97 * unfolded);
    shared += time(group) > time(of_stage) ? 1 : 0;
  }
  CHECK(shared >= 10);
}

// Two of each stage's four ranks on a machine, with those of seven other stages at one NIC.
TEST_CASE("with the pipeline innermost tensor groups of all stages meet at the NICs of a machine") {
  const auto step = [](const std::string& order) {
    LayoutCase c{.machine = "pcie-rtx4090", .nodes = 4, .pipeline = 8, .tensor = 4};
    c.order = order;
    const Plan plan = plan_of(c);
    const double folded = folded_seconds(plan);
    CHECK(folded >= 0.97 * unfolded_seconds(plan));
    return folded;
  };
  CHECK(step("pipeline, tensor, data") > 1.5 * step("tensor, data, pipeline"));
}
