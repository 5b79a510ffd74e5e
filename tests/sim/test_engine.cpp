// Activities that are timed while alone, against those that are fluids from the start; and what errors leave behind.
#include "sim/engine.hpp"

#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::sim;

namespace {

constexpr double engine_precision = 1e-9;  // SimGrid's own, in seconds

Platform machine(int ranks) {
  const TransferCost link{.latency = {5e-6}, .bandwidth = {50e9}};
  return {.ranks = ranks, .ranks_per_machine = ranks, .inside = link, .outside = link};
}

// A computation and a message that have all to themselves end at 1 s.
void require_a_working_engine() {
  FluidEngine engine(machine(3));
  engine.compute(0, 0, {1.0});
  engine.transfer(1, 1, 2, {0}, {1.0});
  std::vector<ActivityId> all;
  engine.run([&](std::span<const ActivityId> ended) {
    CHECK(engine.now().value == 1.0);
    all.insert(all.end(), ended.begin(), ended.end());
  });
  CHECK(all == std::vector<ActivityId>{0, 1});
}

}  // namespace

TEST_CASE("a computation that another joins on its own device has only a share from then on") {
  FluidEngine engine(machine(2));
  engine.compute(0, 0, {10.0});
  engine.compute(1, 1, {1.0});
  std::map<ActivityId, double> end;
  engine.run([&](std::span<const ActivityId> ended) {
    end[ended[0]] = engine.now().value;
    if (ended[0] == 1) engine.compute(2, 0, {2.0});
    if (ended[0] == 2) engine.compute(3, 0, {1.0});
  });
  // 0 has 9 s left when 2 joins it, 7 when 3 does, 6 when it is alone again.
  CHECK(end.at(2) == Approx(5.0).margin(engine_precision).epsilon(0));
  CHECK(end.at(3) == Approx(7.0).margin(engine_precision).epsilon(0));
  CHECK(end.at(0) == Approx(13.0).margin(engine_precision).epsilon(0));
}

TEST_CASE("computations on a device of their own end as the same ones do that are fluids from the start") {
  // Rank 1 does nothing: on one core for two ranks, those of rank 0 are fluids and have the core for themselves.
  Platform own = machine(4);
  own.ranks_per_machine = 2;
  Platform fluid = own;
  fluid.cores_per_machine = 1;
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::uniform_real_distribution<double> seconds(0.1, 1.0 + 0.05 * round);  // first many at once, then mostly alone
    std::vector<double> gaps(40);
    std::vector<double> works(40);
    for (double& gap : gaps) gap = seconds(random);
    for (double& work : works) work = std::uniform_real_distribution<double>(0.05, 1.0)(random);
    const auto run = [&](const Platform& platform) {
      FluidEngine engine(platform);
      std::map<ActivityId, double> end;
      // Activity 2k is the gap on rank 2 after which 2k + 1 starts on rank 0.
      engine.compute(0, 2, {gaps[0]});
      engine.run([&](std::span<const ActivityId> ended) {
        for (const ActivityId id : ended) {
          end[id] = engine.now().value;
          if (id % 2 != 0) continue;
          engine.compute(id + 1, 0, {works[id / 2]});
          if (id / 2 + 1 < gaps.size()) engine.compute(id + 2, 2, {gaps[id / 2 + 1]});
        }
      });
      return end;
    };
    const auto expected = run(fluid);
    double worst = 0;
    for (const auto& [id, seconds_at_end] : run(own))
      worst = std::max(worst, std::abs(seconds_at_end - expected.at(id)));
    REQUIRE(expected.size() == 80);
    CHECK(worst < 100 * engine_precision);
  }
}

TEST_CASE("a message that another joins at a port has only a share of it from then on") {
  FluidEngine engine(machine(4));
  engine.transfer(0, 0, 1, {100'000'000}, {1e-3});  // flows from 1 to 3 ms if nothing joins it
  engine.compute(1, 3, {2e-3});
  std::map<ActivityId, double> end;
  engine.run([&](std::span<const ActivityId> ended) {
    for (const ActivityId id : ended) end[id] = engine.now().value;
    if (ended[0] == 1) engine.transfer(2, 2, 1, {25'000'000}, {0});
  });
  // 1 ms is left of the first, 0.5 ms of the second: half the port each until the second has ended.
  CHECK(end.at(2) == Approx(3e-3).margin(engine_precision).epsilon(0));
  CHECK(end.at(0) == Approx(3.5e-3).margin(engine_precision).epsilon(0));
}

TEST_CASE("messages that are alone for a while end as the same ones do that are fluids from the start") {
  constexpr int ranks = 4;
  constexpr ActivityId companion = 1000;
  struct Sent {
    double gap;
    int from;
    int to;
    Bytes bytes;
    Seconds latency;
  };
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<Sent> sent(40);
    for (Sent& message : sent) {
      message.gap = std::uniform_real_distribution<double>(1e-5, 5e-5 * (round + 1))(random);
      message.from = std::uniform_int_distribution<int>(0, ranks - 1)(random);
      message.to = (message.from + std::uniform_int_distribution<int>(1, ranks - 1)(random)) % ranks;
      message.bytes = {std::uniform_int_distribution<std::int64_t>(0, 50'000'000)(random)};
      message.latency = {std::uniform_real_distribution<double>(0, 5e-4)(random)};
    }
    const auto run = [&](bool fluid) {
      FluidEngine engine(machine(ranks + 1));
      std::map<ActivityId, double> end;
      // Two messages of no bytes that meet at a port keep it from ever being one message's own, and take none of it.
      for (int from = 0; fluid && from < ranks; ++from) {
        for (int i = 0; i < 2; ++i) engine.transfer(companion, from, (from + 1) % ranks, {0}, {1.0});
      }
      // Activity 2k is the gap after which 2k + 1 is sent.
      engine.compute(0, ranks, {sent[0].gap});
      engine.run([&](std::span<const ActivityId> ended) {
        for (const ActivityId id : ended) {
          if (id == companion) continue;
          end[id] = engine.now().value;
          if (id % 2 != 0) continue;
          const Sent& message = sent[id / 2];
          engine.transfer(id + 1, message.from, message.to, message.bytes, message.latency);
          if (id / 2 + 1 < sent.size()) engine.compute(id + 2, ranks, {sent[id / 2 + 1].gap});
        }
      });
      return end;
    };
    const auto expected = run(true);
    double worst = 0;
    for (const auto& [id, seconds] : run(false)) worst = std::max(worst, std::abs(seconds - expected.at(id)));
    REQUIRE(expected.size() == 80);
    CHECK(worst < 100 * engine_precision);
  }
}

TEST_CASE("an exception with work in flight leaves run cleanly") {
  {
    Platform platform = machine(8);
    platform.ranks_per_machine = 4;
    platform.cores_per_machine = 2;  // shared: fluids
    FluidEngine engine(platform);
    int calls = 0;
    const auto start_more = [&] {
      for (int rank = 0; rank < 8; ++rank) {
        engine.compute(0, rank, {0.1 * (rank + 1)});
        engine.transfer(1, rank, (rank + 1) % 8, {1'000'000'000}, {1e-3});
        engine.transfer(2, rank, (rank + 3) % 8, {0}, {0.5});
      }
    };
    start_more();
    const auto throws = [&](std::span<const ActivityId>) {
      start_more();
      if (++calls == 5) throw std::runtime_error("stop in the middle");
    };
    CHECK_THROWS_WITH(engine.run(throws), "stop in the middle");
    CHECK(calls == 5);
  }
  require_a_working_engine();
  {
    FluidEngine engine(machine(8));  // nothing shared: timed
    for (int rank = 0; rank < 8; ++rank) engine.compute(0, rank, {0.1 * (rank + 1)});
    CHECK_THROWS_WITH(engine.run([](std::span<const ActivityId>) { throw std::runtime_error("at once"); }), "at once");
    // The same engine goes on.
    engine.compute(9, 0, {1.0});
    std::vector<ActivityId> ended_after;
    engine.run([&](std::span<const ActivityId> ended) { ended_after.assign(ended.begin(), ended.end()); });
    CHECK(ended_after == std::vector<ActivityId>{9});
  }
  require_a_working_engine();
}

TEST_CASE("an activity that fails is an error of the run, and leaves nothing behind") {
  {
    FluidEngine engine(machine(4));
    // Two on a device, so that they are fluids.
    for (int i = 0; i < 2; ++i) engine.compute(0, 0, {5.0});
    engine.compute(1, 1, {1.0});
    engine.compute(2, 2, {10.0});
    for (int i = 0; i < 2; ++i) engine.transfer(3, 2, 3, {1000}, {20.0});
    int calls = 0;
    const auto turn_off = [&](std::span<const ActivityId>) {
      ++calls;
      simgrid::s4u::Host::by_name("rank0")->turn_off();
    };
    CHECK_THROWS_AS(engine.run(turn_off), RunError);
    CHECK(calls == 1);
  }
  require_a_working_engine();
}
