// What plumb relies on in SimGrid, each fact by its own name: a new version that breaks one is caught here.
// Closed forms: a message alone takes latency + bytes / bandwidth; n fluids on one resource get 1/n of it each.
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "sim/engine.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::sim;

namespace {

constexpr double precision = 1e-9;  // SimGrid's own, in seconds

Platform machine(int ranks, TransferCost port = {.latency = {5e-6}, .bandwidth = {50e9}}) {
  return {.ranks = ranks, .ranks_per_machine = ranks, .inside = port, .outside = port};
}

// When each activity ended; `begin` starts them at time zero.
template <class Begin>
std::map<ActivityId, double> ends(const Platform& platform, const Begin& begin) {
  FluidEngine engine(platform);
  begin(engine);
  std::map<ActivityId, double> result;
  engine.run([&](std::span<const ActivityId> ended) {
    for (const ActivityId id : ended) result[id] = engine.now().value;
  });
  return result;
}

}  // namespace

TEST_CASE("a message alone takes exactly latency plus bytes by bandwidth") {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{8}, std::int64_t{100'000'000}}) {
    const auto end = ends(machine(2), [&](FluidEngine& e) { e.transfer(0, 0, 1, {bytes}, {5e-6}); });
    CHECK(end.at(0) == Approx(5e-6 + static_cast<double>(bytes) / 50e9).margin(precision).epsilon(0));
  }
}

TEST_CASE("a message of no bytes takes its latency") {
  const auto end = ends(machine(2), [](FluidEngine& e) { e.transfer(0, 0, 1, {0}, {7e-6}); });
  CHECK(end.at(0) == Approx(7e-6).margin(precision).epsilon(0));
}

TEST_CASE("both directions of a port are full duplex") {
  const auto end = ends(machine(2), [](FluidEngine& e) {
    e.transfer(0, 0, 1, {100'000'000}, {5e-6});
    e.transfer(1, 1, 0, {100'000'000}, {5e-6});
  });
  CHECK(end.at(0) == Approx(2.005e-3).margin(precision).epsilon(0));
  CHECK(end.at(1) == Approx(2.005e-3).margin(precision).epsilon(0));
}

TEST_CASE("messages of different latency share a port equally: TCP's unfairness is removed") {
  const auto end = ends(machine(3), [](FluidEngine& e) {
    e.transfer(0, 0, 1, {100'000'000}, {5e-6});
    e.transfer(1, 0, 2, {100'000'000}, {22.5e-6});
  });
  // The first alone for 17.5 µs, then half the port each: 2·2 ms in all, the second ends last at full speed.
  CHECK(end.at(0) == Approx(5e-6 + 17.5e-6 + 2 * (2e-3 - 17.5e-6)).margin(precision).epsilon(0));
  CHECK(end.at(1) == Approx(5e-6 + 4e-3).margin(precision).epsilon(0));
}

TEST_CASE("no TCP window limits a long fast link") {
  const TransferCost port{.latency = {20e-6}, .bandwidth = {450e9}};
  const auto end = ends(machine(2, port), [](FluidEngine& e) { e.transfer(0, 0, 1, {450'000'000}, {20e-6}); });
  CHECK(end.at(0) == Approx(1.02e-3).margin(precision).epsilon(0));
}

TEST_CASE("an infinite bandwidth leaves the latency, at any size") {
  const TransferCost port{.latency = {1e-3}, .bandwidth = {std::numeric_limits<double>::infinity()}};
  const auto end = ends(machine(2, port), [](FluidEngine& e) { e.transfer(0, 0, 1, {1'000'000'000'000}, {1e-3}); });
  CHECK(end.at(0) == Approx(1e-3).margin(precision).epsilon(0));
}

TEST_CASE("ranks inside and outside a machine do not share ports") {
  const Platform platform{.ranks = 4,
                          .ranks_per_machine = 2,
                          .inside = {.latency = {1e-6}, .bandwidth = {100e9}},
                          .outside = {.latency = {1e-5}, .bandwidth = {10e9}}};
  const auto end = ends(platform, [](FluidEngine& e) {
    e.transfer(0, 0, 1, {100'000'000}, {1e-6});
    e.transfer(1, 0, 2, {100'000'000}, {1e-5});
  });
  CHECK(end.at(0) == Approx(1e-6 + 1e-3).margin(precision).epsilon(0));
  CHECK(end.at(1) == Approx(1e-5 + 1e-2).margin(precision).epsilon(0));
}

TEST_CASE("n messages into one port get an n-th each") {
  const auto end = ends(machine(5), [](FluidEngine& e) {
    for (int from = 1; from < 5; ++from) e.transfer(static_cast<ActivityId>(from), from, 0, {50'000'000}, {0});
  });
  for (ActivityId id = 1; id < 5; ++id) CHECK(end.at(id) == Approx(4e-3).margin(precision).epsilon(0));
}

TEST_CASE("max-min: a flow that is limited elsewhere leaves its share to others") {
  // 0→1 and 0→2 share the port of 0; 3→2 and 4→2 press 0→2 down to a third of 2's port; 0→1 gets two thirds.
  const auto end = ends(machine(5), [](FluidEngine& e) {
    e.transfer(1, 0, 1, {100'000'000}, {0});
    e.transfer(2, 0, 2, {50'000'000}, {0});
    e.transfer(3, 3, 2, {50'000'000}, {0});
    e.transfer(4, 4, 2, {50'000'000}, {0});
  });
  for (ActivityId id = 1; id < 5; ++id) CHECK(end.at(id) == Approx(3e-3).margin(precision).epsilon(0));
}

TEST_CASE("ranks on fewer cores share them as a fluid") {
  Platform platform = machine(4);
  platform.cores_per_machine = 2;
  const auto four = ends(platform, [](FluidEngine& e) {
    for (int rank = 0; rank < 4; ++rank) e.compute(static_cast<ActivityId>(rank), rank, {1.0});
  });
  for (const auto& [id, end] : four) CHECK(end == Approx(2.0).margin(precision).epsilon(0));
  const auto three = ends(platform, [](FluidEngine& e) {
    for (int rank = 0; rank < 3; ++rank) e.compute(static_cast<ActivityId>(rank), rank, {1.0});
  });
  for (const auto& [id, end] : three) CHECK(end == Approx(1.5).margin(precision).epsilon(0));
  const auto two = ends(platform, [](FluidEngine& e) {
    for (int rank = 0; rank < 2; ++rank) e.compute(static_cast<ActivityId>(rank), rank, {1.0});
  });
  for (const auto& [id, end] : two) CHECK(end == Approx(1.0).margin(precision).epsilon(0));
}

// Of one that stands for several each computes on a core: with c cores for n of them on k each, min(1, c / (n · k)).
TEST_CASE("ranks on several cores each share what there is as so many ranks would") {
  const auto end_of = [](int cores, int each, int count) {
    Platform platform = machine(4);
    platform.cores_per_machine = cores;
    platform.cores_per_rank = each;
    const auto all = ends(platform, [&](FluidEngine& e) {
      for (int rank = 0; rank < count; ++rank) e.compute(static_cast<ActivityId>(rank), rank, {1.0});
    });
    for (const auto& [id, end] : all) CHECK(end == Approx(all.at(0)).margin(precision).epsilon(0));
    return all.at(0);
  };
  CHECK(end_of(3, 2, 1) == Approx(1.0).margin(precision).epsilon(0));
  CHECK(end_of(3, 2, 2) == Approx(4.0 / 3).margin(precision).epsilon(0));
  CHECK(end_of(3, 2, 4) == Approx(8.0 / 3).margin(precision).epsilon(0));
  CHECK(end_of(2, 2, 2) == Approx(2.0).margin(precision).epsilon(0));
  CHECK(end_of(8, 2, 4) == Approx(1.0).margin(precision).epsilon(0));
}

TEST_CASE("with a core for each rank none is slowed down") {
  Platform platform = machine(4);
  platform.cores_per_machine = 4;
  const auto end = ends(platform, [](FluidEngine& e) {
    for (int rank = 0; rank < 4; ++rank) e.compute(static_cast<ActivityId>(rank), rank, {1.0 + rank});
  });
  for (const auto& [id, seconds] : end) CHECK(seconds == Approx(1.0 + id).margin(precision).epsilon(0));
}

TEST_CASE("cores are shared inside a machine only") {
  Platform platform = machine(4);
  platform.ranks_per_machine = 2;
  platform.cores_per_machine = 1;
  const auto end = ends(platform, [](FluidEngine& e) {
    e.compute(0, 0, {1.0});
    e.compute(1, 1, {1.0});
    e.compute(2, 2, {1.0});
  });
  CHECK(end.at(0) == Approx(2.0).margin(precision).epsilon(0));
  CHECK(end.at(1) == Approx(2.0).margin(precision).epsilon(0));
  CHECK(end.at(2) == Approx(1.0).margin(precision).epsilon(0));
}

TEST_CASE("all that ends at one moment is told at once, in ascending order") {
  FluidEngine engine(machine(8));
  for (const int rank : {3, 1, 7, 0, 5, 2, 6, 4}) engine.compute(static_cast<ActivityId>(rank), rank, {0.5});
  std::vector<std::vector<ActivityId>> calls;
  engine.run([&](std::span<const ActivityId> ended) { calls.emplace_back(ended.begin(), ended.end()); });
  REQUIRE(calls.size() == 1);
  CHECK(calls[0] == std::vector<ActivityId>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("timers come before the ends of activities: of one moment, what was alone first, then what contended") {
  FluidEngine engine(machine(4));
  engine.transfer(0, 0, 1, {0}, {0.5});
  engine.transfer(5, 0, 1, {0}, {0.5});
  engine.compute(7, 3, {0.5});
  engine.transfer(1, 1, 2, {0}, {0.5});
  engine.compute(6, 2, {0.5});
  std::vector<std::vector<ActivityId>> calls;
  std::vector<double> times;
  engine.run([&](std::span<const ActivityId> ended) {
    calls.emplace_back(ended.begin(), ended.end());
    times.push_back(engine.now().value);
  });
  CHECK(calls == std::vector<std::vector<ActivityId>>{{1, 6, 7}, {0, 5}});
  CHECK(times == std::vector<double>{0.5, 0.5});
}

TEST_CASE("a timer can be moved to an earlier moment and back") {
  FluidEngine engine(machine(3));
  engine.compute(0, 0, {10.0});
  engine.compute(1, 1, {1.0});
  std::vector<std::pair<ActivityId, double>> calls;
  engine.run([&](std::span<const ActivityId> ended) {
    calls.emplace_back(ended[0], engine.now().value);
    if (ended[0] == 1) engine.compute(2, 2, {2.0});
  });
  CHECK(calls == std::vector<std::pair<ActivityId, double>>{{1, 1.0}, {2, 3.0}, {0, 10.0}});
}

TEST_CASE("activities may start others when they end, at the same moment") {
  FluidEngine engine(machine(2));
  engine.compute(0, 0, {0.25});
  double last = 0;
  engine.run([&](std::span<const ActivityId> ended) {
    if (ended[0] < 9) engine.compute(ended[0] + 1, static_cast<int>(ended[0] + 1) % 2, {0.25});
    last = engine.now().value;
  });
  CHECK(last == Approx(2.5).margin(10 * precision).epsilon(0));
}

TEST_CASE("an exception passes through the engine, and another engine works after it") {
  {
    FluidEngine engine(machine(2));
    engine.compute(0, 0, {1.0});
    engine.compute(1, 1, {2.0});
    CHECK_THROWS_WITH(engine.run([](std::span<const ActivityId>) { throw std::runtime_error("stop here"); }),
                      "stop here");
  }
  const auto end = ends(machine(2), [](FluidEngine& e) { e.compute(0, 0, {1.0}); });
  CHECK(end.at(0) == 1.0);
}

TEST_CASE("a thousand engines one after another give the same times to the last bit") {
  const auto once = [] {
    return ends(machine(3), [](FluidEngine& e) {
      e.compute(0, 0, {0.1});
      e.transfer(1, 1, 2, {12'345'678}, {3.3e-6});
      e.transfer(2, 1, 0, {7'654'321}, {3.3e-6});
    });
  };
  const auto first = once();
  bool equal = true;
  for (int i = 0; i < 1000; ++i) equal = equal && once() == first;
  CHECK(equal);
}

TEST_CASE("an engine with work left under way can be given up") {
  {
    FluidEngine engine(machine(2));
    engine.compute(0, 0, {1.0});
    engine.transfer(1, 0, 1, {100}, {1.0});
  }
  const auto end = ends(machine(2), [](FluidEngine& e) { e.compute(0, 0, {1.0}); });
  CHECK(end.at(0) == 1.0);
}

TEST_CASE("platforms that make no sense are refused") {
  CHECK_THROWS_AS(FluidEngine(machine(2, {.latency = {-1}, .bandwidth = {1e9}})), InputError);
  CHECK_THROWS_AS(FluidEngine(machine(2, {.latency = {0}, .bandwidth = {0}})), InputError);
  CHECK_THROWS_AS(FluidEngine(machine(2, {.latency = {0}, .bandwidth = {std::nan("")}})), InputError);
  CHECK_THROWS_AS(FluidEngine(machine(0)), InputError);
}
