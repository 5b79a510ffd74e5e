// The runner against the critical path (where nothing contends) and max-min closed forms (where something does).
#include "sim/runner.hpp"

#include <limits>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/sim/hand_made.hpp"

using namespace plumb;
using namespace plumb::sim;
using plumb::tests::hand_made;
using plumb::tests::message;
using plumb::tests::work;

namespace {

const TransferCost wire{.latency = {1e-3}, .bandwidth = {1e9}};

Platform platform(int ranks, int cores = 0) {
  return {.ranks = ranks, .ranks_per_machine = ranks, .cores_per_machine = cores, .inside = wire, .outside = wire};
}

}  // namespace

TEST_CASE("a chain of work and messages takes the sum of its parts") {
  const auto graph = hand_made({work(0, 0.5), message(0, 1, 1'000'000, wire), work(1, 0.25)}, {{0, 1}, {1, 2}}, 2);
  const Evaluation result = simulate(graph, platform(2));
  CHECK(result.start[1].value == Approx(0.5).margin(1e-9).epsilon(0));
  CHECK(result.end[1].value == Approx(0.502).margin(1e-9).epsilon(0));
  CHECK(result.makespan.value == Approx(0.752).margin(1e-9).epsilon(0));
}

TEST_CASE("two ranks on one core take twice as long while both are busy") {
  const auto graph = hand_made({work(0, 1.0), work(1, 3.0)}, {}, 2);
  const Evaluation result = simulate(graph, platform(2, 1));
  CHECK(result.end[0].value == Approx(2.0).margin(1e-9).epsilon(0));
  CHECK(result.end[1].value == Approx(4.0).margin(1e-9).epsilon(0));
}

TEST_CASE("two messages over one port share its bandwidth, but not their latencies") {
  const auto graph = hand_made({message(0, 1, 1'000'000'000, wire), message(0, 2, 1'000'000'000, wire)}, {}, 3);
  const Evaluation result = simulate(graph, platform(3));
  CHECK(result.end[0].value == Approx(2.001).margin(1e-9).epsilon(0));
  CHECK(result.end[1].value == Approx(2.001).margin(1e-9).epsilon(0));
}

TEST_CASE("a collective of two ranks is a message each way, and waits for both") {
  Node collective = message(1, 0, 1'000'000, wire);
  collective.kind = NodeKind::collective;
  collective.duration = Seconds{2e-3} + Bytes{1'000'000} / wire.bandwidth;
  const auto graph = hand_made({work(0, 0.5), work(1, 0.25), collective, work(0, 1.0)}, {{0, 2}, {1, 2}, {2, 3}}, 2);
  const Evaluation result = simulate(graph, platform(2));
  CHECK(result.start[2].value == Approx(0.5).margin(1e-9).epsilon(0));
  CHECK(result.end[2].value == Approx(0.503).margin(1e-9).epsilon(0));
  CHECK(result.makespan.value == Approx(1.503).margin(1e-9).epsilon(0));
}

TEST_CASE("both ways of a collective of two ranks share ports with what else goes there") {
  // What leaves rank 1 for rank 0 and for rank 2 leaves by one port, what comes from rank 0 has its own.
  for (const auto& [from, to] : {std::pair(1, 0), std::pair(0, 1)}) {
    Node collective = message(from, to, 1'000'000'000, wire);
    collective.kind = NodeKind::collective;
    const auto graph = hand_made({collective, message(1, 2, 1'000'000'000, wire)}, {}, 3);
    const Evaluation result = simulate(graph, platform(3));
    CHECK(result.end[0].value == Approx(2.001).margin(1e-9).epsilon(0));
    CHECK(result.end[1].value == Approx(2.001).margin(1e-9).epsilon(0));
  }
}

TEST_CASE("nodes that take no time end when they begin, also in chains and at the start") {
  const auto graph =
      hand_made({work(0, 0), work(0, 0), work(0, 1.0), work(0, 0), work(0, 0)}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, 1);
  const Evaluation result = simulate(graph, platform(1));
  CHECK(result.end[1].value == 0);
  CHECK(result.start[3].value == 1.0);
  CHECK(result.end[4].value == 1.0);
}

TEST_CASE("an empty graph takes no time") { CHECK(simulate(hand_made({}, {}, 1), platform(1)).makespan.value == 0); }

TEST_CASE("nodes that never become ready are named") {
  auto graph = hand_made({work(0, 1.0, 0), work(0, 1.0, 7), work(1, 1.0, 8)}, {{0, 1}, {1, 2}}, 2);
  ++graph.predecessor_count[1];
  CHECK_THROWS_AS(simulate(graph, platform(2)), RunError);
  CHECK_THROWS_WITH(simulate(graph, platform(2)),
                    ContainsSubstring("2 of 3 actions never started") && ContainsSubstring("rank 0: 0F7"));
}

// A device copies by itself: neither its computing nor that of others takes anything from it.
TEST_CASE("a copy to the rank's own host goes beside all that computes, also on one core") {
  Node copy = work(0, 3.0);
  copy.kind = NodeKind::host_copy;
  const auto graph = hand_made({work(0, 1.0), copy, work(1, 1.0), work(0, 0.5)}, {{1, 3}}, 2);
  const Evaluation result = simulate(graph, platform(2, 1));
  CHECK(result.end[1].value == Approx(3.0));
  CHECK(result.end[0].value == Approx(2.0));  // of two that share the core
  CHECK(result.makespan.value == Approx(3.5));
}

TEST_CASE("graphs that cannot be simulated are refused before anything runs") {
  CHECK_THROWS_AS(simulate(hand_made({work(0, -1.0)}, {}, 1), platform(1)), InputError);
  CHECK_THROWS_AS(simulate(hand_made({work(0, std::numeric_limits<double>::quiet_NaN())}, {}, 1), platform(1)),
                  InputError);
  CHECK_THROWS_AS(simulate(hand_made({work(0, std::numeric_limits<double>::infinity())}, {}, 1), platform(1)),
                  InputError);
  CHECK_THROWS_AS(simulate(hand_made({message(0, 0, 1, wire)}, {}, 1), platform(1)), InputError);
  Node copy = work(0, 1.0);
  copy.kind = NodeKind::reshard;
  CHECK_THROWS_AS(simulate(hand_made({copy}, {}, 1), platform(1)), InputError);
}
