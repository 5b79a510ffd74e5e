// Speeds that change at dates against their integrals: what is done by t is the sum of factor × time.
#include "sim/disturbances.hpp"

#include <cmath>
#include <map>

#include "common/base/error.hpp"
#include "common/planner/make_plan.hpp"
#include "common/study/what_if.hpp"
#include "sim/engine.hpp"
#include "sim/predict.hpp"
#include "sim/runner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/sim/hand_made.hpp"

using namespace plumb;
using namespace plumb::sim;
using plumb::tests::hand_made;
using plumb::tests::message;
using plumb::tests::work;

namespace {

constexpr double precision = 1e-8;  // SimGrid's own is 1e-9 s a change
const TransferCost port{.latency = {1e-3}, .bandwidth = {1e9}};

Platform platform(int ranks, int per_machine = 0) {
  return {.ranks = ranks, .ranks_per_machine = per_machine > 0 ? per_machine : ranks, .inside = port, .outside = port};
}

// When each activity ended; `begin` starts them at time zero.
template <class Begin>
std::map<ActivityId, double> ends(const Platform& platform, const std::vector<Disturbance>& disturbances,
                                  const Begin& begin) {
  FluidEngine engine(platform, disturbances);
  begin(engine);
  std::map<ActivityId, double> result;
  engine.run([&](std::span<const ActivityId> ended) {
    for (const ActivityId id : ended) result[id] = engine.now().value;
  });
  return result;
}

Approx near(double seconds) { return Approx(seconds).margin(precision).epsilon(0); }

}  // namespace

TEST_CASE("speeds of one thing multiply where disturbances overlap") {
  const std::vector<Disturbance> all = {{.factor = 0.5, .from = {1}, .until = {3}},
                                        {.factor = 0.5, .from = {2}, .until = {4}},
                                        {.factor = 0, .from = {6}}};
  CHECK(speed_changes(all) ==
        std::vector<SpeedChange>{{{0}, 1}, {{1}, 0.5}, {{2}, 0.25}, {{3}, 0.5}, {{4}, 1}, {{6}, 0}});
  CHECK(anything_fails(all));
  CHECK_FALSE(anything_fails(std::span(all).first(2)));
}

TEST_CASE("a device at half speed for a while does half as much in it") {
  const std::vector<Disturbance> slow = {{.rank = 0, .factor = 0.5, .from = {1}, .until = {3}}};
  const auto end = ends(platform(2), slow, [](FluidEngine& e) {
    e.compute(0, 0, {4.0});  // 1 + 2·½ + 2
    e.compute(1, 1, {4.0});
  });
  CHECK(end.at(0) == near(5.0));
  CHECK(end.at(1) == near(4.0));
}

TEST_CASE("a slow device from the first moment on, and what starts on it while it is slow") {
  const std::vector<Disturbance> slow = {{.rank = 0, .factor = 0.25, .from = {0}, .until = {2}}};
  CHECK(ends(platform(1), slow, [](FluidEngine& e) { e.compute(0, 0, {0.25}); }).at(0) == near(1.0));
  CHECK(ends(platform(1), slow, [](FluidEngine& e) { e.compute(0, 0, {1.5}); }).at(0) == near(3.0));
}

TEST_CASE("a link at half speed for a while carries the integral, begun before or within") {
  const std::vector<Disturbance> slow = {
      {.what = Disturbed::ports, .rank = 1, .factor = 0.5, .from = {0.2}, .until = {0.4}}};
  // 1 GB at 1 GB/s after 1 ms: 0.199 + 0.1 by 0.4, 0.701 left.
  CHECK(ends(platform(2), slow, [](FluidEngine& e) { e.transfer(0, 0, 1, {1'000'000'000}, {1e-3}); }).at(0) ==
        near(1.101));
  // Begins slow and speeds up: 0.01 s until 0.21, then 0.095 of 0.5 GB by 0.4.
  const auto later = ends(platform(3), slow, [](FluidEngine& e) {
    e.compute(0, 2, {0.3});
    e.transfer(1, 1, 0, {100'000'000}, {0.31});  // 0.045 by 0.4, 0.055 left
  });
  CHECK(later.at(1) == near(0.455));
  // The rest of the platform is as before.
  CHECK(ends(platform(4), slow, [](FluidEngine& e) { e.transfer(0, 2, 3, {1'000'000'000}, {1e-3}); }).at(0) ==
        near(1.001));
}

TEST_CASE("a paused rank continues afterwards, and frees its share of other ports meanwhile") {
  const std::vector<Disturbance> still = {
      {.what = Disturbed::ports, .rank = 0, .factor = 0, .from = {0.5}, .until = {2.0}}};
  const auto end = ends(platform(3), still, [](FluidEngine& e) {
    e.transfer(0, 0, 2, {1'000'000'000}, {0});
    e.transfer(1, 1, 2, {1'000'000'000}, {0});
  });
  // Both at half speed for 0.5 s; then the second alone: 0.75 s more; the first has 0.75 GB left at 2 s.
  CHECK(end.at(1) == near(1.25));
  CHECK(end.at(0) == near(2.75));
  const std::vector<Disturbance> device = {{.rank = 0, .factor = 0, .from = {0.5}, .until = {2.0}}};
  CHECK(ends(platform(1), device, [](FluidEngine& e) { e.compute(0, 0, {1.0}); }).at(0) == near(2.5));
  // Begun while it stands still, after a latency that passes meanwhile.
  const auto begun = ends(platform(3), still, [](FluidEngine& e) { e.transfer(0, 0, 2, {1'000'000'000}, {0.6}); });
  CHECK(begun.at(0) == near(3.0));
}

TEST_CASE("a slow way between two ranks slows their messages alone, and their ports stay one") {
  const std::vector<Disturbance> slow = {{.what = Disturbed::way, .rank = 2, .peer = 1, .factor = 0.25}};
  const auto end = ends(platform(4), slow, [](FluidEngine& e) {
    e.transfer(0, 1, 2, {1'000'000'000}, {0});  // a quarter of the port, 4 s
    e.transfer(1, 1, 3, {1'500'000'000}, {0});  // the other three quarters of it: 2 s
    e.transfer(2, 2, 1, {500'000'000}, {0});    // the other direction: a quarter, 2 s
  });
  CHECK(end.at(0) == near(4.0));
  CHECK(end.at(1) == near(2.0));
  CHECK(end.at(2) == near(2.0));
  const auto outside = ends(platform(4, 2), slow, [](FluidEngine& e) {
    e.transfer(0, 1, 2, {1'000'000'000}, {0});
    e.transfer(1, 1, 0, {1'000'000'000}, {0});  // inside the machine: another port
  });
  CHECK(outside.at(0) == near(4.0));
  CHECK(outside.at(1) == near(1.0));
}

TEST_CASE("ports to other machines are slow without those inside") {
  const std::vector<Disturbance> slow = {{.what = Disturbed::outside_ports, .rank = 1, .factor = 0.5}};
  const auto end = ends(platform(4, 2), slow, [](FluidEngine& e) {
    e.transfer(0, 1, 2, {1'000'000'000}, {0});
    e.transfer(1, 1, 0, {1'000'000'000}, {0});
  });
  CHECK(end.at(0) == near(2.0));
  CHECK(end.at(1) == near(1.0));
}

TEST_CASE("only the disturbed rank of a shared NIC is slower") {
  Platform shared = platform(4, 2);
  shared.shared.ranks_per_nic = 2;
  shared.shared.nic = {1e9};
  const std::vector<Disturbance> slow = {{.what = Disturbed::outside_ports, .rank = 0, .factor = 0.25}};
  const auto together = [](FluidEngine& e) {
    e.transfer(0, 0, 2, {1'000'000'000}, {0});  // a quarter of the NIC, 4 s
    e.transfer(1, 1, 3, {1'500'000'000}, {0});  // the rest: 2 s
  };
  const auto end = ends(shared, slow, together);
  CHECK(end.at(0) == near(4.0));
  CHECK(end.at(1) == near(2.0));
  const std::vector<Disturbance> failed = {{.what = Disturbed::ports, .rank = 0, .factor = 0, .from = {0.5}}};
  const auto left = ends(shared, failed, together);  // half of the NIC for 0.5 s, then all of it for 1.25 GB
  CHECK_FALSE(left.contains(0));
  CHECK(left.at(1) == near(1.75));
}

TEST_CASE("messages and collectives of a disturbed rank or way are slow behind one port alike") {
  Platform fast = platform(3);
  fast.collective = {4e9};
  const auto together = [](FluidEngine& e) {
    e.transfer(0, 0, 1, {1'000'000'000}, {0});
    e.flow(1, 1, 2, 4e9, {0});
    e.flow(2, 0, 1, 3e9, {0});
  };
  const auto whole = ends(fast, {}, together);  // 1 and 3 of the port's 4 GB/s
  CHECK(whole.at(0) == near(1.0));
  CHECK(whole.at(1) == near(1.0));
  CHECK(whole.at(2) == near(1.0));
  const auto half = ends(fast, {{.what = Disturbed::ports, .rank = 0, .factor = 0.5}}, together);
  CHECK(half.at(0) == near(2.0));
  CHECK(half.at(1) == near(1.0));
  CHECK(half.at(2) == near(2.0));
  const auto path = ends(fast, {{.what = Disturbed::way, .rank = 1, .peer = 0, .factor = 0.5}}, together);
  CHECK(path.at(0) == near(2.0));
  CHECK(path.at(2) == near(1.5));  // half of its own way, 2 GB/s
}

TEST_CASE("a transfer timed alone shares bandwidth with later sends of a disturbed rank") {
  Platform shared = platform(4, 2);
  shared.shared.ranks_per_nic = 2;
  shared.shared.nic = {1e9};
  const std::vector<Disturbance> late = {{.what = Disturbed::outside_ports, .rank = 0, .factor = 0.5, .from = {10}}};
  const auto end = ends(shared, late, [](FluidEngine& e) {
    e.transfer(0, 0, 2, {500'000'000}, {0.5});  // 0.5 GB/s from 0.5 s on
    e.transfer(1, 1, 3, {1'000'000'000}, {0});  // alone for 0.5 s
  });
  CHECK(end.at(0) == near(1.5));
  CHECK(end.at(1) == near(1.5));
}

TEST_CASE("disturbances that end after everything change nothing, nor what runs next") {
  const std::vector<Disturbance> late = {{.rank = 0, .factor = 0.5, .from = {1e6}, .until = {2e6}},
                                         {.what = Disturbed::ports, .rank = 1, .factor = 0.0, .from = {3e6}}};
  for (int round = 0; round < 3; ++round) {
    const auto end = ends(platform(2), late, [](FluidEngine& e) {
      e.compute(0, 0, {1.0});
      e.transfer(1, 0, 1, {1'000'000'000}, {1e-3});
    });
    CHECK(end.at(0) == near(1.0));
    CHECK(end.at(1) == near(1.001));
  }
}

TEST_CASE("actions that need a failed one never end, and are named before their dependents") {
  const auto graph = hand_made({work(0, 1.0), message(0, 1, 1'000'000, port), work(1, 1.0), work(0, 5.0, 1)},
                               {{0, 1}, {1, 2}, {0, 3}}, 2);
  const std::vector<Disturbance> failed = {{.what = Disturbed::ports, .rank = 1, .factor = 0, .from = {0.5}}};
  for (int round = 0; round < 2; ++round) {  // the engine that was left with something under way goes away in peace
    const StepOutcome outcome = simulate(graph, platform(2), failed);
    CHECK(outcome.unfinished == std::vector<NodeId>{1, 2});
    CHECK(outcome.evaluation.end[3].value == near(6.0));
  }
  const std::vector<Disturbance> device = {{.rank = 0, .factor = 0, .from = {0.5}}};
  CHECK(simulate(graph, platform(2), device).unfinished == std::vector<NodeId>{0, 1, 2, 3});
  CHECK(simulate(graph, platform(2), {}).unfinished.empty());
}

TEST_CASE("a slow uplink of a leaf slows what leaves it, and nothing under it") {
  Platform leaves = platform(4, 1);
  leaves.shared.ranks_per_leaf = 2;
  leaves.shared.leaf = {2e9};
  const auto together = [](FluidEngine& e) {
    e.transfer(0, 0, 2, {1'000'000'000}, {0});
    e.transfer(1, 1, 3, {1'000'000'000}, {0});
    e.transfer(2, 2, 3, {1'000'000'000}, {0});
  };
  const auto whole = ends(leaves, {}, together);  // rank 3 receives two: half of its port each
  CHECK(whole.at(0) == near(1.0));
  CHECK(whole.at(1) == near(2.0));
  const auto slow = ends(leaves, {{.what = Disturbed::leaf, .rank = 1, .factor = 0.25}}, together);
  CHECK(slow.at(0) == near(4.0));  // each a half of 0.5 GB/s
  CHECK(slow.at(1) == near(4.0));
  CHECK(slow.at(2) == near(1.0 / 0.75));  // the rest of rank 3's port
  const auto other = ends(leaves, {{.what = Disturbed::leaf, .rank = 3, .factor = 0, .from = {0.5}, .until = {1.5}}},
                          [](FluidEngine& e) { e.transfer(0, 0, 2, {1'000'000'000}, {0}); });
  CHECK(other.at(0) == near(2.0));
}

TEST_CASE("time under changing speed is where the integral reaches the work") {
  const std::vector<SpeedChange> changes = {{{0}, 1}, {{1}, 0.5}, {{3}, 0}, {{4}, 1}};
  CHECK(time_under(changes, {0}, {0.5}).value == Approx(0.5));
  CHECK(time_under(changes, {0}, {2.0}).value == Approx(3.0));
  CHECK(time_under(changes, {2}, {1.0}).value == Approx(2.5));
  CHECK(std::isinf(time_under(std::span(changes).first(3), {2}, {1.0}).value));
}

// One stage on two data-parallel machines: compute, the reduction over the network, the optimizer. Nothing else sends.
TEST_CASE("a slow network slows the data-parallel reduction that crosses it, from the date on") {
  const Scenario scenario = testing::read_text(testing::scenario_text(
      "cluster: {machine: dgx-a100, nodes: 2, ranks: 16}\n"
      "layout: {order: [tensor, data, pipeline], pipeline: 1, tensor: {degree: 1}, data: {degree: 16}}\n"
      "training: {sequence: 32, global_batch: 16, microbatch: 1}\n"));
  const Plan plan = make_plan(scenario, only_choice(scenario));
  const double reduction = plan.costs.stages[0].gradient_reduction.value;
  const double optimizer = plan.costs.stages[0].optimizer.value;
  const StepEngine engine = find_step_engine("simgrid");
  const auto step = [&](const std::string& link) {
    const std::string text = "- {name: a, link: {machine: 0, " + link + "}}\n";
    return predict_what_if(read_what_if(YamlValue::parse(text, "w.yaml"), plan).front(), engine);
  };
  const double whole = predict_what_if({.name = "as planned", .plan = plan}, engine).iteration.value;
  CHECK(step("factor: 1").iteration.value == Approx(whole).epsilon(1e-9));
  CHECK(step("factor: 0.25").iteration.value == Approx(whole + 3 * reduction).epsilon(1e-6));
  // From the middle of the reduction on: the other half takes twice as long.
  const double middle = whole - optimizer - reduction / 2;
  const std::string from = "factor: 0.5, from: " + std::to_string(middle * 1e6) + " us";
  CHECK(step(from).iteration.value == Approx(whole + reduction / 2).epsilon(1e-4));
  const WhatIfOutcome failed = step("fails: true");
  CHECK(failed.never_ran > 0);
  CHECK_THAT(failed.failure, ContainsSubstring("to other machines failed"));
}

TEST_CASE("disturbances that cannot be are refused") {
  const auto refused = [](Disturbance disturbance, Platform on = platform(2)) {
    CHECK_THROWS_AS(FluidEngine(on, std::vector{disturbance}), InputError);
  };
  refused({.rank = 2, .factor = 0.5});
  refused({.what = Disturbed::way, .rank = 1, .peer = 1, .factor = 0.5});
  refused({.factor = 1e-6});
  refused({.factor = 1.5});
  refused({.factor = 0.5, .from = {2}, .until = {1}});
  Platform shared = platform(2);
  shared.cores_per_machine = 1;
  refused({.factor = 0.5}, shared);
}
