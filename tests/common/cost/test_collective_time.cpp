// Collectives against the closed forms of their algorithms, and the choice among them.
#include "common/cost/collective_time.hpp"

#include <algorithm>
#include <cmath>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr double bus = 200e9;
constexpr double nic = 25e9;
constexpr double base = 20e-6;
constexpr double per_rank = 2e-6;

Machine machine() {
  Machine result{.name = "made up", .devices = 8};
  result.inside = {.latency = {{1e-5}}, .bandwidth = {{50e9}}};
  result.outside = {.latency = {{1e-5}}, .bandwidth = {{nic}}};
  result.collective_bandwidth.value = {bus};
  result.collective_latency.value = {base};
  result.collective_latency_per_rank.value = {per_rank};
  return result;
}

double seconds(CollectiveAlgorithm algorithm, const Machine& machine, double bytes, const GroupPlacement& group,
               Collective kind = Collective::all_reduce) {
  REQUIRE(applies(algorithm, machine, kind, group));
  return time_of(plan_of(algorithm, machine, kind, bytes, group)).value;
}

double alpha(double n) { return base + per_rank * n; }

}  // namespace

// Patarasuk and Yuan 2009; the factors are nccl-tests' (doc/PERFORMANCE.md).
TEST_CASE("rings send 2(n-1)/n of the bytes of an all-reduce and half of it for a gather or a scatter") {
  const double S = 1e8;
  for (const int n : {2, 3, 8}) {
    const GroupPlacement inside{.ranks = n, .per_machine = n};
    const double pass = (n - 1.0) / n * S / bus;
    CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, inside) == Approx(alpha(n) + 2 * pass).epsilon(1e-12));
    CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, inside, Collective::all_gather) ==
          Approx(alpha(n) / 2 + pass).epsilon(1e-12));
    CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, inside, Collective::reduce_scatter) ==
          Approx(alpha(n) / 2 + pass).epsilon(1e-12));
    CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, inside, Collective::all_to_all) ==
          Approx(alpha(n) + pass).epsilon(1e-12));
  }
  CHECK(collective_time(machine(), Collective::all_reduce, S, {}).value == 0);
}

TEST_CASE("between machines a group has the NICs of its ranks, divided by those that send at once") {
  const double S = 1e9;
  const auto bandwidth = [&](GroupPlacement group) {
    const double n = group.ranks;
    const double time = seconds(CollectiveAlgorithm::ring, machine(), S, group);
    return 2 * (n - 1) / n * S / (time - alpha(n));
  };
  CHECK(bandwidth({.ranks = 16, .per_machine = 1}) == Approx(nic));
  CHECK(bandwidth({.ranks = 16, .per_machine = 4}) == Approx(4 * nic));
  CHECK(bandwidth({.ranks = 64, .per_machine = 8}) == Approx(8 * nic));
  CHECK(bandwidth({.ranks = 16, .per_machine = 1, .ranks_per_nic = 2}) == Approx(nic / 2));
  CHECK(bandwidth({.ranks = 64, .per_machine = 8, .ranks_per_nic = 2}) == Approx(4 * nic));
}

TEST_CASE("rings through the uplinks of PCIe switches have what these pass") {
  Machine box = machine();
  box.devices_per_switch = 4;
  box.uplink.value = {10e9};
  const double S = 1e9;
  const auto time = [&](double passes) {
    return seconds(CollectiveAlgorithm::ring, box, S, {.ranks = 8, .per_machine = 8, .uplink_passes = passes});
  };
  CHECK(time(0) == Approx(alpha(8) + 2 * 7.0 / 8 * S / bus));
  CHECK(time(1) == Approx(alpha(8) + 2 * 7.0 / 8 * S / 10e9));
  CHECK(time(4) == Approx(alpha(8) + 2 * 7.0 / 8 * S / 2.5e9));
}

// Sanders, Speck, Träff 2009: both halves of the bytes through a tree each, up and down. NCCL's tuning counts
// 2 (k-1) steps inside and 2 log2 M between; a ring of n has 2(n-1) steps in n times the latency per rank.
TEST_CASE("trees need log2 steps over machines and move twice the bytes") {
  const double S = 1e5;
  CHECK(seconds(CollectiveAlgorithm::tree, machine(), S, {.ranks = 64, .per_machine = 1}) ==
        Approx(base + per_rank * (1 + 6) + 2 * S / nic));
  CHECK(seconds(CollectiveAlgorithm::tree, machine(), S, {.ranks = 40, .per_machine = 8}) ==
        Approx(base + per_rank * (8 + 3) + 2 * S / (8 * nic)));
  CHECK_FALSE(applies(CollectiveAlgorithm::tree, machine(), Collective::all_gather, {.ranks = 64, .per_machine = 1}));
  CHECK_FALSE(applies(CollectiveAlgorithm::tree, machine(), Collective::all_reduce, {.ranks = 8, .per_machine = 8}));
}

TEST_CASE("hierarchically the bytes are scattered inside, reduced by each rank's NIC, gathered inside") {
  const double S = 1e8;
  const double inside = alpha(8) / 2 + 7.0 / 8 * S / bus;
  const double between = alpha(4) + 2 * 3.0 / 4 * (S / 8) / nic;
  CHECK(seconds(CollectiveAlgorithm::hierarchical, machine(), S, {.ranks = 32, .per_machine = 8}) ==
        Approx(2 * inside + between).epsilon(1e-12));
  const CollectivePlan plan =
      plan_of(CollectiveAlgorithm::hierarchical, machine(), Collective::all_reduce, S, {.ranks = 32, .per_machine = 8});
  REQUIRE(plan.count == 3);
  CHECK(plan.phases[0].outside == 0);
  CHECK(plan.phases[1].inside == 0);
  CHECK(plan.phases[1].outside == Approx(2 * 3.0 / 4 * S / 8));
}

// The switch adds: every device sends its bytes once and gets the sums once, whatever the group's size.
TEST_CASE("a switch that reduces does so at its own bus bandwidth over all devices, where there is one") {
  Machine fast = machine();
  const double S = 1e8;
  const GroupPlacement four{.ranks = 4, .per_machine = 4};
  CHECK_FALSE(applies(CollectiveAlgorithm::in_switch, fast, Collective::all_reduce, four));
  fast.switch_bandwidth.value = {400e9};
  CHECK(seconds(CollectiveAlgorithm::in_switch, fast, S, four) == Approx(alpha(2) + 2 * 7.0 / 8 * S / 400e9));
  CHECK_FALSE(applies(CollectiveAlgorithm::in_switch, fast, Collective::all_gather, four));
  CHECK_FALSE(applies(CollectiveAlgorithm::in_switch, fast, Collective::all_reduce, {.ranks = 16, .per_machine = 8}));
  CHECK(fastest_collective(fast, Collective::all_reduce, S, {.ranks = 8, .per_machine = 8}).algorithm ==
        CollectiveAlgorithm::in_switch);
}

TEST_CASE("the fastest is taken: trees for little over many machines, rings for much") {
  const GroupPlacement many{.ranks = 256, .per_machine = 1};
  const auto chosen = [&](double bytes) {
    return fastest_collective(machine(), Collective::all_reduce, bytes, many).algorithm;
  };
  CHECK(chosen(1e4) == CollectiveAlgorithm::tree);
  CHECK(chosen(1e10) == CollectiveAlgorithm::ring);
  // Where both take the same: α(256) + 2·255/256·S/B = α(1 + 8) + 2·S/B.
  const double crossover = per_rank * (256 - 9) / (2 * (1 - 255.0 / 256)) * nic;
  CHECK(chosen(crossover * 0.99) == CollectiveAlgorithm::tree);
  CHECK(chosen(crossover * 1.01) == CollectiveAlgorithm::ring);
  for (const double bytes : {1e3, 1e5, 1e7, 1e9}) {
    for (const GroupPlacement& group :
         {many, GroupPlacement{.ranks = 64, .per_machine = 8}, GroupPlacement{.ranks = 8, .per_machine = 8}}) {
      double best = 1e9;
      for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
                                                  CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::in_switch}) {
        if (!applies(algorithm, machine(), Collective::all_reduce, group)) continue;
        best = std::min(best, seconds(algorithm, machine(), bytes, group));
      }
      CHECK(collective_time(machine(), Collective::all_reduce, bytes, group).value == best);
    }
  }
}

TEST_CASE("a phase's traffic takes its time on ports and NICs of the machine's rates") {
  const double S = 1e8;
  Machine slow_inside = machine();
  slow_inside.collective_bandwidth.value = {10e9};
  for (const Machine& on : {machine(), slow_inside}) {
    for (const GroupPlacement& group :
         {GroupPlacement{.ranks = 8, .per_machine = 8},
          GroupPlacement{.ranks = 64, .per_machine = 8, .ranks_per_nic = 2},
          GroupPlacement{.ranks = 16, .per_machine = 1}, GroupPlacement{.ranks = 16, .per_machine = 2}}) {
      const CollectivePhase phase = plan_of(CollectiveAlgorithm::ring, on, Collective::all_reduce, S, group).phases[0];
      const double inside = phase.inside / on.collective_bandwidth.value.value;
      const double outside = phase.outside / (nic / group.ranks_per_nic);
      CHECK((phase.time - phase.latency).value == Approx(std::max(inside, outside)).epsilon(1e-12));
    }
  }
}

TEST_CASE("between sites a ring waits for their latency at each step, a tree on its way up and down") {
  const double S = 1e8;
  const GroupPlacement group{.ranks = 16, .per_machine = 1, .border = {1e9}, .step_latency = {5e-3}};
  CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, group) ==
        Approx(alpha(16) + 30 * 5e-3 + 2 * 15.0 / 16 * S / 1e9));
  CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, group, Collective::all_gather) ==
        Approx((alpha(16) + 30 * 5e-3) / 2 + 15.0 / 16 * S / 1e9));
  CHECK(seconds(CollectiveAlgorithm::tree, machine(), S, group) == Approx(alpha(1 + 4) + 2 * 5e-3 + 2 * S / 1e9));
  CHECK(fastest_collective(machine(), Collective::all_reduce, S, group).algorithm == CollectiveAlgorithm::tree);
}

// Of k groups' worth of messages each carries a k-th of the bytes, and each has a k-th of a way that all of them share.
TEST_CASE("hierarchically the ranks of a machine divide what a switch's uplink, a leaf or a site passes") {
  const double S = 1e8;
  const double gather = alpha(8) / 2 + 7.0 / 8 * S / bus;
  const double share = 2 * 3.0 / 4 * (S / 8);  // that a rank sends between four machines
  const GroupPlacement bordered{.ranks = 32, .per_machine = 8, .border = {40e9}};
  CHECK(seconds(CollectiveAlgorithm::hierarchical, machine(), S, bordered) ==
        Approx(2 * (alpha(8) / 2 + 7.0 / 8 * S / bus) + alpha(4) + share / (40e9 / 8)).epsilon(1e-12));
  Machine box = machine();
  box.devices_per_switch = 4;
  box.inside.bandwidth.value = {1e12};  // so that ports limit nothing
  box.uplink.value = {64e9};
  const GroupPlacement switched{.ranks = 32, .per_machine = 8, .uplink_passes = 0.5};
  const double inside = alpha(8) / 2 + 7.0 / 8 * S / (64e9 / 0.5);
  CHECK(seconds(CollectiveAlgorithm::hierarchical, box, S, switched) ==
        Approx(2 * inside + alpha(4) + share / (64e9 / (0.5 * 8))).epsilon(1e-12));
  // Sites are between machines alone: of the three parts only the middle one waits for them, at each of 2(M−1) steps.
  const GroupPlacement far{.ranks = 32, .per_machine = 8, .step_latency = {1e-3}};
  CHECK(seconds(CollectiveAlgorithm::hierarchical, machine(), S, far) ==
        Approx(2 * gather + alpha(4) + 6 * 1e-3 + share / nic).epsilon(1e-12));
}

// A device's one PCIe port takes its flow to the next device and, of the k that leave the machine in as many rings, a
// k-th: 1 + 1/k of what it sends.
TEST_CASE("behind a PCIe switch what leaves a machine shares the port with what stays inside") {
  Machine box = machine();
  box.devices_per_switch = 8;
  box.uplink.value = {1e12};
  box.outside.bandwidth.value = {1e12};
  const double S = 1e9;
  const double port = box.inside.bandwidth.value.value;
  const auto rate = [&](const GroupPlacement& group) {
    const double n = group.ranks;
    return 2 * (n - 1) / n * S / (seconds(CollectiveAlgorithm::ring, box, S, group) - alpha(n));
  };
  CHECK(rate({.ranks = 16, .per_machine = 8}) == Approx(port / (1 + 1.0 / 8)));
  CHECK(rate({.ranks = 16, .per_machine = 2}) == Approx(port / (1 + 1.0 / 2)));
  CHECK(rate({.ranks = 16, .per_machine = 1}) == Approx(port));  // nothing stays inside
  CHECK(rate({.ranks = 8, .per_machine = 8}) == Approx(bus));    // nothing leaves
}

// An all-to-all by pairs of ranks has n − 1 steps.
TEST_CASE("between sites an all-to-all waits for their latency n - 1 times") {
  const double S = 1e8;
  const GroupPlacement group{.ranks = 16, .per_machine = 1, .step_latency = {5e-3}};
  CHECK(seconds(CollectiveAlgorithm::ring, machine(), S, group, Collective::all_to_all) ==
        Approx(alpha(16) + 15 * 5e-3 + 15.0 / 16 * S / nic).epsilon(1e-12));
}

// A tree over two machines is the ring of two with more bytes.
TEST_CASE("trees begin at three machines, counting one that is not full") {
  const auto has_tree = [](int ranks, int per_machine) {
    return applies(CollectiveAlgorithm::tree, machine(), Collective::all_reduce,
                   {.ranks = ranks, .per_machine = per_machine});
  };
  CHECK_FALSE(has_tree(2, 1));
  CHECK_FALSE(has_tree(16, 8));
  CHECK_FALSE(has_tree(12, 8));
  CHECK(has_tree(3, 1));
  CHECK(has_tree(17, 8));
  CHECK(has_tree(24, 8));
}
