// What a pipeline's messages have of NICs, uplinks, leaves and sites that the ranks of their stage share.
#include "common/cost/links/pipeline_links.hpp"

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;

namespace {

constexpr double nic = 24e9;

Cluster eight_devices(int nics) {
  Cluster cluster{.machine = {.name = "eight", .devices = 8}, .nodes = 8};
  cluster.machine.nics = nics;
  cluster.machine.inside = {.latency = {{1e-5}}, .bandwidth = {{50e9}}};
  cluster.machine.outside = {.latency = {{3e-5}}, .bandwidth = {{nic}}};
  return cluster;
}

PipelineCosts ways(const Cluster& cluster, int pipeline, int tensor, int data = 1) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.tensor.degree = tensor;
  layout.data.degree = data;
  PipelineCosts costs;
  costs.ranks_per_machine = std::max(1, 8 / (tensor * data));
  set_links(costs, layout, cluster, {1e-6});
  return costs;
}

}  // namespace

TEST_CASE("ranks of one stage that share a NIC have its parts, those of two stages share it when they send") {
  CHECK(ways(eight_devices(0), 4, 8).outside.bandwidth.value == nic);
  CHECK(ways(eight_devices(8), 4, 8).outside.bandwidth.value == nic);
  for (const int nics : {1, 2, 4}) {
    const PipelineCosts costs = ways(eight_devices(nics), 4, 8);
    CHECK(costs.outside.bandwidth.value == Approx(nic * nics / 8));
    CHECK(costs.shared.ranks_per_nic == 1);
    CHECK(costs.shared.nic == costs.outside.bandwidth);
  }
  // Two stages of one rank under each NIC; four stages of two ranks under one.
  CHECK(ways(eight_devices(4), 16, 1).outside.bandwidth.value == nic);
  CHECK(ways(eight_devices(4), 16, 1).shared.ranks_per_nic == 2);
  CHECK(ways(eight_devices(1), 16, 2).outside.bandwidth.value == Approx(nic / 2));
  CHECK(ways(eight_devices(1), 16, 2).shared.ranks_per_nic == 4);
  CHECK(ways(eight_devices(4), 2, 8, 4).inside.bandwidth.value == 50e9);
  CHECK(ways(eight_devices(4), 2, 8).outside.latency.value == Approx(3.1e-5));
}

TEST_CASE("messages through a PCIe switch have their part of its uplink, and no more than their slot") {
  Cluster box = eight_devices(2);
  box.machine.devices_per_switch = 4;
  box.machine.uplink.value = {20e9};
  const PipelineCosts wide = ways(box, 4, 4);  // a stage under each switch: all four send at once
  CHECK(wide.across.bandwidth.value == Approx(5e9));
  CHECK(wide.outside.bandwidth.value == Approx(5e9));
  CHECK(wide.shared.ranks_per_switch == 1);
  CHECK(transfer_between(wide, 0, 1) == wide.across);
  CHECK(transfer_between(wide, 1, 2) == wide.outside);
  const PipelineCosts narrow = ways(box, 16, 1);
  CHECK(narrow.across.bandwidth.value == Approx(20e9));
  CHECK(narrow.shared.ranks_per_switch == 4);
  CHECK(transfer_between(narrow, 2, 3) == narrow.inside);
  CHECK(transfer_between(narrow, 3, 4) == narrow.across);
}

TEST_CASE("leaves and sites slow only what crosses them") {
  Cluster cluster = eight_devices(8);
  cluster.nodes_per_leaf = 2;
  cluster.oversubscription = 4;
  cluster.nodes_per_site = 4;
  cluster.between_sites = {.latency = {{1e-2}}, .bandwidth = {{8e9}}};
  CHECK(leaf_bandwidth(cluster).value == Approx(16 * nic / 4));
  const PipelineCosts costs = ways(cluster, 8, 8);
  CHECK(transfer_between(costs, 0, 1).bandwidth.value == nic);
  CHECK(transfer_between(costs, 1, 2).bandwidth.value == Approx(16 * nic / 4 / 8));  // eight ranks of a stage send
  CHECK(transfer_between(costs, 1, 2).latency == costs.outside.latency);
  CHECK(transfer_between(costs, 3, 4).bandwidth.value == Approx(1e9));
  CHECK(transfer_between(costs, 3, 4).latency.value == Approx(1e-2 + 3.1e-5));
}

TEST_CASE("a scenario says how its nodes are connected, and what it says in vain is refused") {
  using plumb::testing::message_for;
  using plumb::testing::scenario_text;
  const auto with = [](const std::string& network) {
    return scenario_text(
        "cluster: {machine: dgx-a100, nodes: 4, " + network + "}\n" +
        "training: {sequence: 32, global_batch: 8}\nlayout: {pipeline: 4, tensor: {degree: 2}, data: {degree: 4}}\n");
  };
  const Cluster cluster = plumb::testing::read_text(with("nodes_per_leaf: 2, oversubscription: 3, "
                                                         "sites: {nodes: 2, bandwidth: 10 GB/s, latency: 5 ms}"))
                              .cluster;
  CHECK(cluster.nodes_per_leaf == 2);
  CHECK(cluster.oversubscription == 3);
  CHECK(cluster.nodes_per_site == 2);
  CHECK(cluster.between_sites.bandwidth.value.value == 10e9);
  CHECK(cluster.between_sites.latency.value.value == Approx(5e-3));
  CHECK_THAT(message_for(with("oversubscription: 3")), ContainsSubstring("of which leaves?"));
  CHECK_THAT(message_for(with("nodes_per_leaf: 2, oversubscription: 0.5")), ContainsSubstring("oversubscription"));
  CHECK_THAT(message_for(with("sites: {nodes: 2, latency: 5 ms}")), ContainsSubstring("bandwidth"));
  CHECK_THAT(message_for(with("sites: {nodes: 2, bandwidth: 10 GB/s, latency: 5 GB}")), ContainsSubstring("latency"));
}
