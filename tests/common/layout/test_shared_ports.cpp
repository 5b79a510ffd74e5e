// Which ranks use a port at once: against a count over all ranks and ports.
#include "common/layout/shared_ports.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

PortSharing counted(const Layout& layout, int devices) {
  std::map<int, std::map<int, int>> ranks_of;  // by port and stage
  for (int rank = 0; rank < ranks(layout); ++rank) {
    ++ranks_of[rank / devices][coordinates(layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline))];
  }
  PortSharing most;
  for (const auto& [port, stages] : ranks_of) {
    most.stages = std::max(most.stages, static_cast<int>(stages.size()));
    for (const auto& [stage, count] : stages) most.together = std::max(most.together, count);
  }
  return most;
}

Layout mesh(int pipeline, int tensor, int data = 1) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.tensor.degree = tensor;
  layout.data.degree = data;
  return layout;
}

Machine pcie_box() {
  Machine machine{.name = "box", .devices = 8, .nics = 2, .devices_per_switch = 4};
  machine.uplink.value = {25e9};
  return machine;
}

}  // namespace

TEST_CASE("ranks that share a port are those that a count over all ports finds") {
  std::mt19937 random(1);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int round = 0; round < 500; ++round) {
    Layout layout = mesh(pick(6), pick(4), pick(4));
    layout.context = pick(2);
    std::ranges::shuffle(layout.order, random);
    const int devices = pick(8);
    INFO(describe(layout) << " on ports of " << devices);
    CHECK(port_sharing(layout, devices) == counted(layout, devices));
  }
}

TEST_CASE("a NIC of two devices serves two ranks of one stage, or one of each of two") {
  const Machine machine{.name = "four NICs", .devices = 8, .nics = 4};
  const int each = devices_per_nic(machine);
  REQUIRE(each == 2);
  CHECK(port_sharing(mesh(4, 8), each) == PortSharing{.together = 2, .stages = 1});
  CHECK(port_sharing(mesh(16, 1), each) == PortSharing{.together = 1, .stages = 2});
  CHECK(port_sharing(mesh(4, 3), each) == PortSharing{.together = 2, .stages = 2});
  CHECK(devices_per_nic({.name = "own ports", .devices = 8}) == 1);
}

TEST_CASE("rings cross a switch's uplink once, and share it with the other groups of their stage") {
  const Machine box = pcie_box();
  const auto passes = [&](const Layout& layout, MeshAxis axis) {
    return group_links(layout, axis, {.machine = box}).uplink_passes;
  };
  // All eight in one ring: one neighbour under the other switch.
  CHECK(passes(mesh(1, 8), MeshAxis::tensor) == 1);
  // Each switch has a group of its own.
  CHECK(passes(mesh(1, 4, 2), MeshAxis::tensor) == 0);
  // Pairs (0, 4), (1, 5), (2, 6) and (3, 7): four cross at once.
  CHECK(passes(mesh(1, 4, 2), MeshAxis::data) == 4);
  // Of two stages one ring each.
  CHECK(passes(mesh(2, 2, 2), MeshAxis::data) == 0);
  // Sixteen on two machines: one crosses inside, and of each of the four under a switch an eighth leaves.
  CHECK(passes(mesh(1, 16), MeshAxis::tensor) == Approx(1 + 4.0 / 8));
  CHECK(group_links(mesh(1, 16), MeshAxis::tensor, {.machine = box}).ranks_per_nic == 4);
  CHECK(group_links(mesh(1, 1), MeshAxis::tensor, {.machine = box}) == GroupLinks{});
}

TEST_CASE("traffic of a stage's rings over leaf and site borders, all groups at once") {
  const Machine machine{.name = "eight", .devices = 8};
  const Cluster cluster{.machine = machine, .nodes = 8, .nodes_per_leaf = 2, .nodes_per_site = 4};
  // Eight groups of eight ranks, one on each machine: each group's ring leaves each leaf and each site once.
  CHECK(group_links(mesh(1, 8, 8), MeshAxis::data, cluster).leaf_passes == 8);
  CHECK(group_links(mesh(1, 8, 8), MeshAxis::data, cluster).site_passes == 8);
  // One group of all: eight rings that each carry an eighth.
  CHECK(group_links(mesh(1, 1, 64), MeshAxis::data, cluster).leaf_passes == Approx(1));
  // Groups within a machine, and within a leaf.
  CHECK(group_links(mesh(1, 8, 8), MeshAxis::tensor, cluster).leaf_passes == 0);
  CHECK(group_links(mesh(4, 8, 2), MeshAxis::data, cluster).leaf_passes == 0);
  // Of two stages of four machines one ring of each of the eight groups.
  CHECK(group_links(mesh(2, 8, 4), MeshAxis::data, cluster).leaf_passes == 8);
  CHECK(group_links(mesh(2, 8, 4), MeshAxis::data, cluster).site_passes == 0);
}

namespace {

// By what every rank sends: its part of its machine's share, to the group's next machine.
double counted_passes(const Layout& layout, MeshAxis axis, int devices, int nodes, bool together, int stage) {
  std::map<std::tuple<int, int, bool>, double> ports;  // by stage, port and way
  double most = 0;
  for (int rank = 0; rank < ranks(layout); ++rank) {
    const int own_stage = coordinates(layout, rank)[static_cast<std::size_t>(MeshAxis::pipeline)];
    if (has_stage_data(layout) && own_stage != stage) continue;
    std::map<int, int> members;
    for (const int member : group(layout, rank, axis)) ++members[member / devices];
    const int own = rank / devices;
    const auto after = members.upper_bound(own);
    const int next = after == members.end() ? members.begin()->first : after->first;
    if (own / nodes == next / nodes) continue;
    const int key = together ? 0 : own_stage;
    for (const bool out : {false, true}) {
      most = std::max(most, ports[{key, (out ? own : next) / nodes, out}] += 1.0 / members[own]);
    }
  }
  return most;
}

}  // namespace

TEST_CASE("traffic over a border is the sum of all ranks' sends over it") {
  std::mt19937 random(5);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  int crossing = 0;
  for (int round = 0; round < 600; ++round) {
    Layout layout = mesh(pick(4), pick(6), pick(8));
    std::ranges::shuffle(layout.order, random);
    if (round % 3 == 0) {
      layout = mesh(3, pick(4), 1);
      layout = with_stage_data(layout, {pick(6), pick(6), pick(6)});
    }
    const int devices = pick(12);
    const int nodes = pick(3);
    const Cluster cluster{.machine = {.name = "any", .devices = devices}, .nodes = 1000, .nodes_per_leaf = nodes};
    const int stage = pick(layout.pipeline) - 1;
    for (const MeshAxis axis : {MeshAxis::tensor, MeshAxis::data}) {
      for (const Together together : {Together::one_stage, Together::all_stages}) {
        INFO(describe(layout) << ", " << axis_name(axis) << " on machines of " << devices << ", " << nodes << " each");
        const bool all = together == Together::all_stages;
        const double counted = counted_passes(layout, axis, devices, nodes, all, stage);
        CHECK(group_links(layout, axis, cluster, together, stage).leaf_passes == Approx(counted));
        crossing += counted > 0 ? 1 : 0;
      }
    }
  }
  CHECK(crossing > 500);
}

namespace {

// By looking at every group.
int counted_fewest(const Layout& layout, MeshAxis axis, int devices) {
  int fewest = degree(layout, axis);
  for (int rank = 0; rank < ranks(layout); ++rank) {
    std::map<int, int> members;
    for (const int member : group(layout, rank, axis)) ++members[member / devices];
    for (const auto& [machine, count] : members) fewest = std::min(fewest, count);
  }
  return fewest;
}

}  // namespace

TEST_CASE("the worst placed group of an axis is that of a look at all groups") {
  std::mt19937 random(2);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  int straddling = 0;
  for (int round = 0; round < 1000; ++round) {
    Layout layout = mesh(pick(4), pick(6), pick(round % 4 == 0 ? 60 : 6));
    std::ranges::shuffle(layout.order, random);
    const int devices = pick(12);
    for (const MeshAxis axis : {MeshAxis::tensor, MeshAxis::data, MeshAxis::pipeline}) {
      INFO(describe(layout) << ", " << axis_name(axis) << " on machines of " << devices);
      const int fewest = counted_fewest(layout, axis, devices);
      CHECK(fewest_on_a_machine(layout, axis, devices) == fewest);
      const std::vector<int> first = group(layout, 0, axis);
      straddling += std::ranges::count_if(first, [&](int rank) { return rank < devices; }) > fewest ? 1 : 0;
    }
  }
  CHECK(straddling > 100);  // or the group of rank 0 would do
  // Two racks of 72, groups of 16: {64 .. 79} has eight ranks on each.
  CHECK(fewest_on_a_machine(mesh(1, 16, 9), MeshAxis::tensor, 72) == 8);
}

// A search asks for every cut that it weighs: with a look at every rank this took twenty seconds, and a time limit
// waited for it.
TEST_CASE("a hundred thousand machines take no longer than a few") {
  Layout wide = mesh(5, 1, 160'000);
  wide.order = {MeshAxis::pipeline, MeshAxis::data, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert};
  Layout few = wide;
  few.data.degree = 160;
  const auto begin = std::chrono::steady_clock::now();
  for (int devices = 1; devices <= 1000; ++devices) (void)fewest_on_a_machine(wide, MeshAxis::data, devices);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  for (const int devices : {2, 3, 4, 6, 7, 8, 12, 16}) {
    CHECK(fewest_on_a_machine(few, MeshAxis::data, devices) == counted_fewest(few, MeshAxis::data, devices));
    CHECK(fewest_on_a_machine(wide, MeshAxis::data, devices) == fewest_on_a_machine(few, MeshAxis::data, devices));
  }
}

// A search asks for each family. With a set of members by machine for each group this took 100 s beyond a time limit.
TEST_CASE("borders of a hundred thousand machines behind leaf switches take no more than seconds") {
  const Cluster cluster{
      .machine = {.name = "eight", .devices = 8}, .nodes = 100'000, .nodes_per_leaf = 32, .nodes_per_site = 50'000};
  Layout layout = mesh(20, 8, 5000);
  const auto begin = std::chrono::steady_clock::now();
  int crossing = 0;
  int calls = 0;
  std::ranges::sort(layout.order);
  do {
    for (const MeshAxis axis : {MeshAxis::tensor, MeshAxis::data}) {
      for (const Together together : {Together::one_stage, Together::all_stages}) {
        crossing += group_links(layout, axis, cluster, together).leaf_passes > 0 ? 1 : 0;
        ++calls;
      }
    }
  } while (std::ranges::next_permutation(layout.order).found);
  CHECK(calls == 480);
  CHECK(crossing > 240);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));  // a sanitizer on a busy machine takes 3
}

TEST_CASE("reductions of all stages at once pass the border so many times as they are stages") {
  const Machine machine{.name = "eight", .devices = 8};
  const Cluster cluster{.machine = machine, .nodes = 4, .nodes_per_site = 2};
  Layout layout = mesh(2, 8, 2);
  CHECK(group_links(layout, MeshAxis::data, cluster).site_passes == 0);  // each stage has a site of its own
  CHECK(group_links(layout, MeshAxis::data, cluster, Together::all_stages).site_passes == 0);
  layout.order = {MeshAxis::tensor, MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::expert};
  CHECK(group_links(layout, MeshAxis::data, cluster).site_passes == 8);
  CHECK(group_links(layout, MeshAxis::data, cluster, Together::all_stages).site_passes == 16);
  // A NIC of two devices: one rank of each of two stages.
  const Cluster shared{.machine = {.name = "four NICs", .devices = 8, .nics = 4}, .nodes = 4};
  Layout inner = mesh(8, 1, 4);
  inner.order = {MeshAxis::pipeline, MeshAxis::data, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert};
  CHECK(group_links(inner, MeshAxis::data, shared).ranks_per_nic == 1);
  CHECK(group_links(inner, MeshAxis::data, shared, Together::all_stages).ranks_per_nic == 2);
}

TEST_CASE("a stage's ranks on fewer cores take ranks / cores times as long, others as long as ever") {
  const auto slowdown = [](int cores, const Layout& layout, int devices = 0) {
    return core_slowdown(layout, {.name = "host", .devices = devices > 0 ? devices : ranks(layout), .cores = cores});
  };
  CHECK(slowdown(2, mesh(1, 2, 2)) == 2);
  CHECK(slowdown(3, mesh(1, 4)) == 4.0 / 3);
  CHECK(slowdown(4, mesh(1, 2, 2)) == 1);
  CHECK(slowdown(2, mesh(4, 1)) == 1);  // stages compute when they do
  CHECK(slowdown(2, mesh(4, 2)) == 1);
  CHECK(slowdown(2, mesh(2, 2, 2)) == 2);
  CHECK(slowdown(0, mesh(1, 8)) == 1);        // devices of their own
  CHECK(slowdown(2, mesh(1, 2, 4), 4) == 2);  // four ranks on each of two machines
  Layout inner = mesh(2, 2, 2);
  inner.order = {MeshAxis::pipeline, MeshAxis::data, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert};
  CHECK(slowdown(1, inner, 4) == 2);  // two of each stage
}
