// Collectives that take their predicted times: when they end, against closed forms, and what ranks that meet see.
#include "exec/emulation/emulated_wire.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <stdexcept>
#include <vector>

#include "common/placement/mesh.hpp"
#include "exec/emulation/emulated_group.hpp"
#include "exec/emulation/polled_sleep.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/run/runner.hpp"
#include "exec/stage/emulated_stage.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/plans.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

double seconds_since(Clock::time_point begin, Clock::time_point end) {
  return (seconds_of(end) - seconds_of(begin)).value;
}

// The longest chain: one waits until it is ready, and then all behind it follow one another.
double longest_chain(const std::vector<double>& ready, const std::vector<double>& times) {
  double longest = 0;
  for (std::size_t first = 0; first < ready.size(); ++first) {
    double end = ready[first];
    for (std::size_t i = first; i < times.size(); ++i) end += times[i];
    longest = std::max(longest, end);
  }
  return longest;
}

// Four ranks on one machine of 1 GB/s; 10 µs and 2 µs a rank before the first byte. One stage, gradients of 8 MB.
Plan four_ranks() {
  Plan plan = emulated_plan({.shape = {.ranks = 1, .microbatches = 2}, .time = {0.004}});
  plan.cluster.ranks = 4;
  plan.cluster.machine.devices = 4;
  plan.cluster.machine.collective_bandwidth.value = {1e9};
  plan.cluster.machine.collective_latency.value = {10e-6};
  plan.cluster.machine.collective_latency_per_rank.value = {2e-6};
  plan.layout.data.degree = 4;
  plan.costs.stages.front().gradient_bytes = {8'000'000};
  return plan;
}

// Of stages whose gradients have a size alone.
std::vector<RankLog> run_on_emulated_wire(const Plan& plan, RunOptions options = {.steps = 2}) {
  const Schedule lowered = lowered_schedule(plan);
  const WireTimes times(plan);
  options.emulated_wire = &times;
  const int count = ranks(plan.layout);
  std::vector<RankLog> logs(static_cast<std::size_t>(count));
  run_on_threads(make_local_transports(count), [&](Transport& transport) {
    const auto stages =
        make_emulated_stages(plan, transport.rank(), {.run = &transport, .gradients = GradientMemory::none});
    logs[static_cast<std::size_t>(transport.rank())] = run_rank(plan, lowered, transport, stages, options);
  });
  return logs;
}

const Event& only(const RankStep& step, ActionKind kind) {
  const auto found = std::ranges::find_if(step.events, [&](const Event& event) { return event.action.kind == kind; });
  REQUIRE(found != step.events.end());
  return *found;
}

}  // namespace

TEST_CASE("sums on a lane end with the longest chain of one that is ready and all behind it") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> ready;
    std::vector<double> times;
    double now = 0;
    for (int i = 0; i < 12; ++i) {
      ready.push_back(now += static_cast<double>(random() % 40) * 1e-3);
      times.push_back(static_cast<double>(random() % 60) * 1e-3);
    }
    const Clock::time_point begin = Clock::now();
    EmulatedLane lane;
    Clock::time_point end;
    for (std::size_t i = 0; i < ready.size(); ++i) end = lane.start(after(begin, {ready[i]}), {times[i]});
    CHECK(seconds_since(begin, end) == Approx(longest_chain(ready, times)).margin(1e-7));
  }
}

// Gradients of 8 MB around a ring of four, 2 · 3/4 of them at 1 GB/s; a reduce-scatter half of all.
TEST_CASE("a sum takes the time of a ring, and one within a pipeline that of a message") {
  Plan plan = four_ranks();
  CHECK(WireTimes(plan).reduction({8'000'000}).value == Approx(10e-6 + 4 * 2e-6 + 12e-3));
  plan.layout.data.sharding = Sharding::zero1;
  CHECK(WireTimes(plan).reduction({8'000'000}).value == Approx((10e-6 + 4 * 2e-6 + 12e-3) / 2));
  plan.costs.stages.front().weight_gathering = {0.007};
  CHECK(WireTimes(plan).gathering(0) == Seconds{0.007});
  plan.costs.inside = plan.costs.outside = {.latency = {1e-3}, .bandwidth = {1e9}};
  CHECK(WireTimes(plan).exchange(0, 1, {2'000'000}).value == Approx(1e-3 + 2e-3));
}

// HSDP of two copies of two: within a copy a reduce-scatter, over both an all-reduce of half the bytes.
TEST_CASE("sums over copies take the time of their own ring") {
  Plan plan = four_ranks();
  plan.layout.data.sharding = Sharding::hsdp;
  plan.layout.data.shard = 2;
  plan.layout.data.replicate = 2;
  const double alpha = 10e-6 + 2 * 2e-6;
  CHECK(WireTimes(plan).reduction({8'000'000}).value == Approx((alpha + 8e-3) / 2));
  CHECK(WireTimes(plan).sum_over_copies({4'000'000}).value == Approx(alpha + 4e-3));
}

// Which of the ranks is late differs from sum to sum.
TEST_CASE("ranks that meet behind their sums leave when the last one's would have ended for all") {
  const std::vector<std::vector<double>> ready{{0.002, 0.030}, {0.025, 0.027}, {0.001, 0.002}, {0.003, 0.004}};
  const double time = 10e-6 + 4 * 2e-6 + 12e-3;
  double expected = 0;
  for (const std::vector<double>& of_rank : ready) {
    expected = std::max(expected, longest_chain(of_rank, {time, time}));
  }
  const Plan plan = four_ranks();
  const WireTimes times(plan);
  const Clock::time_point begin = Clock::now();
  std::array<Clock::time_point, 4> left;
  run_on_threads(make_local_transports(4), [&](Transport& transport) {
    EmulatedWire wire(times, transport);
    Clock::time_point end;
    for (const double moment : ready[static_cast<std::size_t>(transport.rank())]) {
      sleep_until(after(begin, {moment}), nullptr);
      end = wire.start_reduction({8'000'000});
    }
    wire.wait(end);
    wire.meet(std::array{0, 1, 2, 3}, after(begin, {60}));
    left[static_cast<std::size_t>(transport.rank())] = Clock::now();
  });
  for (const Clock::time_point moment : left) CHECK(seconds_since(begin, moment) >= expected);
}

TEST_CASE("a rank that waits for an emulated sum ends with its run") {
  const Plan plan = four_ranks();
  const WireTimes times(plan);
  const auto transports = make_local_transports(4);
  EmulatedWire wire(times, *transports[0]);
  transports[1]->abort("told to stop");
  const Clock::time_point begin = Clock::now();
  CHECK_THROWS_WITH(wire.wait(after(begin, {3600})), ContainsSubstring("told to stop"));
  CHECK(seconds_since(begin, Clock::now()) < 60);
  CHECK_THROWS_WITH(wire.meet(std::array{0, 1, 2, 3}, after(begin, {3600})), ContainsSubstring("told to stop"));
}

// Behind the backward: F and B of 4 and 8 ms, two microbatches, 12 ms for the sum, 5 ms for the gathering.
TEST_CASE("sums behind the backward and gathered weights take their predicted times, and move no payload") {
  Plan plan = four_ranks();
  plan.layout.data.sharding = Sharding::zero1;
  plan.costs.stages.front().gathered_bytes = {4'000'000};
  plan.costs.stages.front().weight_gathering = {0.005};
  const double sum = WireTimes(plan).reduction({8'000'000}).value;
  for (const RankLog& log : run_on_emulated_wire(plan)) {
    for (const RankStep& step : log.steps) {
      const Event& reduce = only(step, ActionKind::reduce_gradient);
      const Event& gather = only(step, ActionKind::unshard);
      CHECK(reduce.bytes == Bytes{8'000'000});
      CHECK((reduce.end - reduce.start).value >= sum);
      CHECK(reduce.beside == Seconds{});
      CHECK(gather.bytes == Bytes{4'000'000});
      CHECK((gather.end - gather.start).value >= 0.005);
      CHECK((step.events.back().end - step.start).value >= 2 * 0.012 + sum + 0.005);
      CHECK(step.received_bytes == Bytes{});
      CHECK(step.received_in_data == Bytes{});
    }
  }
}

// 0.3 s, where all computing takes 24 ms and a deadline twice the step.
TEST_CASE("ranks wait for each other as long as their sums take") {
  Plan plan = four_ranks();
  plan.cluster.machine.collective_bandwidth.value = {40e6};
  plan.costs.stages.front().gradient_reduction = WireTimes(plan).reduction({8'000'000});
  CHECK_NOTHROW((void)run_on_emulated_wire(plan, {.deadline_factor = 2, .deadline_floor = {0.05}}));
}

// A plan of measured costs has one block to its stage: of four buckets all wait for the whole backward, so that none is
// hidden, and REDUCE_GRAD waits for the last.
TEST_CASE("buckets that are full together follow one another") {
  Plan plan = four_ranks();
  plan.software.data_overlap = true;
  plan.software.data_bucket = {.bytes = {2'000'000}};
  plan.costs.provenance = "profile of a machine";
  const double bucket = 10e-6 + 4 * 2e-6 + 3e-3;
  for (const RankLog& log : run_on_emulated_wire(plan)) {
    for (const RankStep& step : log.steps) {
      const Event& reduce = only(step, ActionKind::reduce_gradient);
      CHECK(reduce.bytes == Bytes{8'000'000});
      CHECK((reduce.end - reduce.start + reduce.beside).value >= 4 * bucket);
    }
  }
}

// Of the two ends of a pipeline of three: 1 MB at 1 GB/s behind 2 ms.
TEST_CASE("the two ends of a tied table take the time of their message") {
  Plan plan = emulated_plan({.shape = {.ranks = 3, .microbatches = 3}});
  plan.model.tied_embeddings = true;
  plan.costs.tied_bytes = {1'000'000};
  plan.costs.inside = plan.costs.outside = {.latency = {2e-3}, .bandwidth = {1e9}};
  const std::vector<RankLog> logs = run_on_emulated_wire(plan);
  for (const std::size_t rank : {0, 2}) {
    for (const RankStep& step : logs[rank].steps) {
      const Event& reduce = only(step, ActionKind::reduce_tied);
      CHECK(reduce.bytes == Bytes{1'000'000});
      CHECK((reduce.end - reduce.start).value >= 3e-3);
    }
  }
}

// Of 10 TB each, which no machine that runs this can hold, over a wire that is fast enough for them.
TEST_CASE("gradients and weights that nobody touches have sizes and no memory") {
  constexpr Bytes large{10'000'000'000'000};
  Plan plan = four_ranks();
  plan.cluster.machine.collective_bandwidth.value = {1e18};
  plan.layout.data.sharding = Sharding::hsdp;
  plan.layout.data.shard = 2;
  plan.layout.data.replicate = 2;
  plan.layout.data.reshard_after_forward = false;
  plan.layout.data.reduces_each_microbatch = false;
  plan.software.data_overlap = GENERATE(false, true);
  plan.software.data_bucket = {.bytes = {1'000'000'000}};
  plan.costs.provenance = "profile of a machine";
  ComputeCost& cost = plan.costs.stages.front();
  cost.gradient_bytes = cost.gathered_bytes = large;
  cost.data_moves.replicated = large / 2;
  for (const RankLog& log : run_on_emulated_wire(plan)) {
    CHECK(only(log.steps.back(), ActionKind::reduce_gradient).bytes == large + large / 2);
    CHECK(only(log.steps.back(), ActionKind::unshard).bytes == large);
  }
}

namespace {

// One collective of 0.02 s.
CollectiveTable slow_table() {
  Machine machine;
  machine.collective_bandwidth.value = {1e9};
  CollectiveTable table(machine, GroupPlacement{.ranks = 3, .per_machine = 3});
  (void)table.index(Collective::all_gather, 30e6);
  return table;
}

}  // namespace

// Rank 1 comes 0.5 s late. Its step of the ring delays rank 2's, which computes beside it; rank 0 waits for rank 2
// alone, until all wait for all.
TEST_CASE(
    "a step of a ring is on its way from when the rank before it has sent it, and a whole collective waits for all") {
  const CollectiveTable table = slow_table();
  REQUIRE(time_of(table.at(0)).value == Approx(0.02));
  const double late = 0.5;
  const auto ends_of = [&](const std::vector<ActionPart>& parts) {
    std::array<double, 3> ends{};
    const Clock::time_point begin = Clock::now();
    run_on_threads(make_local_transports(3), [&](Transport& transport) {
      EmulatedGroup group(transport, [](Axes /*over*/) { return std::vector{0, 1, 2}; }, {60});
      const bool is_late = transport.rank() == 1;
      if (is_late) sleep_until(after(begin, {late}), nullptr);
      group.run(parts, table, is_late ? Clock::now() : begin);
      ends[static_cast<std::size_t>(transport.rank())] = seconds_since(begin, Clock::now());
      if (transport.received_bytes() != Bytes{}) throw std::logic_error("it moved something");
    });
    return ends;
  };
  const std::array<double, 3> ring =
      ends_of({{.compute = {0.03}, .collective = 0, .beside = true}, {.compute = {0.01}}});
  CHECK(ring[0] >= 0.03 + 0.01);
  CHECK(ring[0] < late);  // of 0.04
  CHECK(ring[1] >= late + 0.03 + 0.01);
  CHECK(ring[2] >= late + 0.02 + 0.01);
  const std::array<double, 3> whole = ends_of({{.compute = {0.01}, .collective = 0}, {.compute = {0.01}}});
  for (const double end : whole) CHECK(end >= late + 0.01 + 0.02 + 0.01);
}

TEST_CASE("along the axes of a grid a rank meets those of its row or its column, in any nesting") {
  Layout layout;
  layout.tensor = {.degree = 4, .kind = TensorKind::two_d};
  layout.data.degree = 2;
  const Mesh mesh = mesh_of(layout);
  const Axes column = set_of(axes_of(mesh, {"tensor.column"}));
  const Axes row = set_of(axes_of(mesh, {"tensor.row"}));
  const auto of = ranks_over_axes(layout, 6);  // the second replica's third
  CHECK(of({}) == std::vector{4, 5, 6, 7});
  CHECK(of(column) == std::vector{6, 7});
  CHECK(of(row) == std::vector{4, 6});
  layout.order = {MeshAxis::data, MeshAxis::tensor, MeshAxis::pipeline, MeshAxis::context, MeshAxis::expert};
  CHECK(ranks_over_axes(layout, 5)(row) == std::vector{1, 5});
}
