// Shared NICs, PCIe uplinks and NVLink ports: max-min closed forms.
#include <algorithm>

#include "sim/runner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/sim/hand_made.hpp"

using namespace plumb;
using namespace plumb::sim;
using plumb::tests::hand_made;

namespace {

constexpr double exact = 1e-6;  // of a time

// Flows that start together, without latency.
struct Sent {
  int from;
  int to;
  std::int64_t bytes;
};

Node message(const Sent& sent) {
  Node node = plumb::tests::message(sent.from, sent.to, sent.bytes, {.latency = {0}, .bandwidth = {1e9}});
  node.flow = 0;
  return node;
}

ScheduleGraph at_once(const std::vector<Sent>& all, int ranks) {
  std::vector<Node> nodes;
  for (const Sent& sent : all) nodes.push_back(message(sent));
  ScheduleGraph graph = hand_made(nodes, {}, ranks);
  graph.flows = {{}};
  return graph;
}

// Adds a collective that starts at once, too; its flow is without latency.
void add_collective(ScheduleGraph& graph, std::vector<int> ranks, double inside, double outside) {
  std::vector<Node> nodes = graph.nodes;
  nodes.push_back({.kind = NodeKind::collective,
                   .action = {ActionKind::reduce_gradient, 0, no_microbatch},
                   .rank = ranks.front(),
                   .bytes = {1},
                   .duration = {1},
                   .group = static_cast<std::int32_t>(graph.groups.size()),
                   .flow = static_cast<std::int32_t>(graph.flows.size())});
  const std::vector<Flow> flows = graph.flows;
  std::vector<std::vector<int>> groups = graph.groups;
  graph = hand_made(nodes, {}, graph.ranks);
  graph.flows = flows;
  graph.flows.push_back({.latency = {}, .inside = inside, .outside = outside});
  groups.push_back(std::move(ranks));
  graph.groups = groups;
}

void require_ends(const ScheduleGraph& graph, const Platform& platform, const std::vector<double>& expected) {
  const Evaluation result = simulate(graph, platform);
  REQUIRE(result.end.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("flow " << i);
    CHECK(result.end[i].value == Approx(expected[i]).epsilon(exact));
  }
}

constexpr TransferCost gigabyte_per_s{.latency = {0}, .bandwidth = {1e9}};
constexpr std::int64_t GB = 1'000'000'000;

Platform own_nics(int machines) {
  return {.ranks = machines, .ranks_per_machine = 1, .inside = gigabyte_per_s, .outside = gigabyte_per_s};
}

// Two machines of four ranks, two NICs each.
Platform shared_nics() {
  return {.ranks = 8,
          .ranks_per_machine = 4,
          .inside = gigabyte_per_s,
          .outside = gigabyte_per_s,
          .shared = {.ranks_per_nic = 2, .nic = {1e9}}};
}

// Two boxes of four ranks, two under each switch; every port, uplink and NIC carries 1 GB/s.
Platform pcie_box() {
  Platform platform = shared_nics();
  platform.across = gigabyte_per_s;
  platform.shared.ranks_per_nic = 4;
  platform.shared.ranks_per_switch = 2;
  platform.shared.uplink = {1e9};
  platform.shared.nic = {2e9};
  return platform;
}

}  // namespace

TEST_CASE("two ranks that send over one NIC have half of it each, until one has ended") {
  require_ends(at_once({{0, 4, GB}, {1, 5, GB}}, 8), shared_nics(), {2, 2});
  require_ends(at_once({{0, 4, GB}, {1, 5, 3 * GB}}, 8), shared_nics(), {2, 4});
  require_ends(at_once({{0, 4, GB}, {2, 6, GB}}, 8), shared_nics(), {1, 1});  // on two NICs
  require_ends(at_once({{0, 4, GB}, {4, 0, GB}}, 8), shared_nics(), {1, 1});  // full duplex
  require_ends(at_once({{0, 4, GB}, {0, 1, GB}}, 8), shared_nics(), {1, 1});  // NVLink stands beside the NIC
}

// Bertsekas and Gallager, Data Networks, section 6.5.2: the link with the least per flow is filled first.
TEST_CASE("a flow has what the others on its NICs cannot use") {
  // Three leave rank 1, so each has a third; the one that meets one of them at rank 2 has two thirds.
  require_ends(at_once({{0, 2, 2 * GB}, {1, 2, GB}, {1, 3, GB}, {1, 4, GB}}, 5), own_nics(5), {3, 3, 3, 3});
  // After 3 s the first has two gigabytes behind it and its NICs to itself.
  require_ends(at_once({{0, 2, 5 * GB}, {1, 2, GB}, {1, 3, GB}, {1, 4, GB}}, 5), own_nics(5), {6, 3, 3, 3});
}

TEST_CASE("a reduction and pipeline messages that leave by one NIC are slower by their max-min shares") {
  // Ranks 0 and 1 each send half a gigabyte of a reduction to the other machine, and rank 0 a message.
  ScheduleGraph graph = at_once({{0, 4, GB}}, 8);
  require_ends(graph, shared_nics(), {1});
  add_collective(graph, {0, 4}, 0, 1e9);
  require_ends(graph, shared_nics(), {2, 2});
  add_collective(graph, {1, 5}, 0, 1e9);
  require_ends(graph, shared_nics(), {3, 3, 3});
  // The other NIC's are not in the way.
  add_collective(graph, {2, 6}, 0, 1e9);
  require_ends(graph, shared_nics(), {3, 3, 3, 1});
}

TEST_CASE("ranks under a PCIe switch share its uplink, but not what stays below it") {
  require_ends(at_once({{0, 1, GB}, {2, 3, GB}}, 8), pcie_box(), {1, 1});
  require_ends(at_once({{0, 2, GB}}, 8), pcie_box(), {1});
  require_ends(at_once({{0, 2, GB}, {1, 3, GB}}, 8), pcie_box(), {2, 2});
  require_ends(at_once({{0, 2, GB}, {1, 3, 2 * GB}}, 8), pcie_box(), {2, 3});
  require_ends(at_once({{0, 2, GB}, {2, 0, GB}}, 8), pcie_box(), {1, 1});
  // A device has one slot, for its neighbour and for all others.
  require_ends(at_once({{0, 1, GB}, {0, 2, GB}}, 8), pcie_box(), {2, 2});
}

TEST_CASE("behind a PCIe switch what leaves the machine goes through slot and uplink as well") {
  require_ends(at_once({{0, 4, GB}}, 8), pcie_box(), {1});
  require_ends(at_once({{0, 4, GB}, {1, 6, GB}}, 8), pcie_box(), {2, 2});  // the uplink of 0 and 1
  require_ends(at_once({{0, 4, GB}, {2, 6, GB}}, 8), pcie_box(), {1, 1});  // the NIC has room for two
  require_ends(at_once({{0, 4, GB}, {0, 1, GB}}, 8), pcie_box(), {2, 2});  // the slot of 0
  require_ends(at_once({{0, 4, GB}, {1, 2, GB}, {3, 0, GB}}, 8), pcie_box(), {2, 2, 1});
}

TEST_CASE("a collective has a port's whole bandwidth, a message only its lane's, and together they fill the port") {
  Platform nvlink{.ranks = 3,
                  .ranks_per_machine = 3,
                  .inside = {.latency = {0}, .bandwidth = {44e9}},
                  .outside = gigabyte_per_s,
                  .collective = {235e9}};
  ScheduleGraph graph = at_once({{0, 2, 44 * GB}}, 3);
  require_ends(graph, nvlink, {1});
  add_collective(graph, {0, 1}, 235e9, 0);
  // The message has all of its lane, the flow 0 → 1 the other 191 GB/s; the flow 1 → 0 is alone.
  require_ends(graph, nvlink, {1, 1 + 44.0 / 235});
  require_ends(at_once({{0, 2, 44 * GB}, {0, 1, 44 * GB}}, 3), nvlink, {2, 2});
}

TEST_CASE("a collective over two machines ends with the slower of its ways") {
  Platform platform = shared_nics();
  platform.collective = {4e9};
  ScheduleGraph graph = at_once({}, 8);
  add_collective(graph, {0, 1, 4, 5}, 4e9, 1e9);  // two ranks over one NIC
  require_ends(graph, platform, {2});
  graph = at_once({}, 8);
  add_collective(graph, {0, 2, 4, 6}, 4e9, 1e9);  // over two
  require_ends(graph, platform, {1});
}

TEST_CASE("machines under a leaf share its uplinks, and those of a site its one link") {
  // Eight machines of one rank, two under a leaf with an uplink of 1 GB/s (2:1), four on a site with a link of 0.5
  // GB/s.
  Platform platform = own_nics(8);
  platform.shared.ranks_per_leaf = 2;
  platform.shared.leaf = {1e9};
  platform.shared.ranks_per_site = 4;
  platform.shared.site = {0.5e9};
  platform.shared.site_latency = {1};
  require_ends(at_once({{0, 1, GB}}, 8), platform, {1});
  require_ends(at_once({{0, 2, GB}, {1, 3, GB}}, 8), platform, {2, 2});
  require_ends(at_once({{0, 2, GB}, {1, 0, GB}}, 8), platform, {1, 1});
  require_ends(at_once({{0, 2, GB}, {2, 0, GB}}, 8), platform, {1, 1});
  require_ends(at_once({{0, 4, GB}}, 8), platform, {2});
  require_ends(at_once({{0, 4, GB}, {3, 7, GB}}, 8), platform, {4, 4});
  // The one within the site has what the other leaves of the uplink.
  require_ends(at_once({{0, 4, GB}, {1, 2, GB}}, 8), platform, {2, 2});
  CHECK(transfer_between(platform, 0, 4).latency.value == 1);
}

TEST_CASE("groups and flows that are not in the graph or not on the platform are refused") {
  const auto refused = [](const auto& change) {
    ScheduleGraph graph = at_once({}, 8);
    add_collective(graph, {0, 4}, 0, 1);
    change(graph);
    CHECK_THROWS_AS(simulate(graph, shared_nics()), InputError);
  };
  refused([](ScheduleGraph& graph) { graph.groups[0] = {0, 8}; });
  refused([](ScheduleGraph& graph) { graph.groups[0] = {4, 0}; });
  refused([](ScheduleGraph& graph) { graph.groups[0] = {4}; });
  refused([](ScheduleGraph& graph) { graph.groups.clear(); });
  refused([](ScheduleGraph& graph) { graph.flows.clear(); });
  Platform platform = pcie_box();
  platform.shared.uplink = {0};
  CHECK_THROWS_AS(simulate(at_once({}, 8), platform), InputError);
}
