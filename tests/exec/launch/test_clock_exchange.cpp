// Clocks of ranks that are threads, shifted on purpose, found again by messages over every transport.
#include "exec/launch/clock_exchange.hpp"

#include <atomic>
#include <cmath>
#include <functional>

#include "exec/launch/launch.hpp"
#include "exec/run/rank_log.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// A rank's clock as a function of the true time.
struct Shifted {
  std::string id;
  std::function<double(double now)> clock;
};

struct Found {
  std::vector<HostClock> clocks;
  Seconds uncertainty;
  std::vector<std::string> warnings;
  std::vector<int> clock_of_rank = {};
};

RankClock rank_clock(const Shifted& shifted) {
  return {.host = "node-" + shifted.id, .id = shifted.id, .now = [clock = shifted.clock] {
            return Seconds{clock(seconds_of(Clock::now()).value)};
          }};
}

// `between` runs on rank 0 between two measurements.
Found exchange(const TransportKind& kind, const std::vector<Shifted>& ranks, const std::function<void()>& between) {
  Found found;
  run_on_threads(kind.make(static_cast<int>(ranks.size())), [&](Transport& transport) {
    ClockExchange clocks(transport, rank_clock(ranks[static_cast<std::size_t>(transport.rank())]), in_seconds(600));
    clocks.measure(in_seconds(600));
    transport.barrier(in_seconds(600));
    if (transport.rank() == 0) between();
    transport.barrier(in_seconds(600));
    clocks.measure(in_seconds(600));
    if (transport.rank() == 0)
      found = {clocks.by_rank(), clocks.uncertainty(), clocks.warnings(), clocks.clock_of_rank()};
  });
  return found;
}

const auto nothing = [] {};
const auto own = [](double now) { return now; };

}  // namespace

TEST_CASE("shifted and drifting clocks are found within what the exchange says, one measurement for a host") {
  const auto fast = [](double now) { return 1.0002 * now + 5000; };
  const auto behind = [](double now) { return now - 77.25; };
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    const double start = seconds_of(Clock::now()).value;
    const Found found = exchange(kind, {{"a", own}, {"b", behind}, {"c", fast}, {"b", behind}, {"a", own}}, nothing);
    const double end = seconds_of(Clock::now()).value;
    REQUIRE(found.clocks.size() == 5);
    CHECK(found.clocks[0].empty());
    CHECK(found.clocks[4].empty());
    CHECK(found.clock_of_rank == std::vector<int>{0, 1, 2, 1, 0});
    CHECK(found.clocks[1] == found.clocks[3]);  // ranks of one host stay as they are to each other
    REQUIRE(found.clocks[1].size() == 2);
    REQUIRE(found.clocks[2].size() == 2);
    for (const double time : {start, (start + end) / 2, end}) {
      const double within = 1e-6 + (end - start) * 2e-4;  // outside of the measurements drift is not followed
      CHECK(std::abs(on_rank_0(found.clocks[1], {behind(time)}).value - time) <=
            uncertainty(found.clocks[1]).value + within);
      CHECK(std::abs(on_rank_0(found.clocks[2], {fast(time)}).value - time) <=
            uncertainty(found.clocks[2]).value + within);
    }
    CHECK(found.uncertainty == uncertainty(found.clocks[1]) + uncertainty(found.clocks[2]));
    CHECK(found.uncertainty > Seconds{0});
    CHECK(found.uncertainty < Seconds{0.05});  // a trip between threads
    CHECK(found.warnings.empty());
  }
}

TEST_CASE("ranks that read one clock exchange nothing, and their times stay as they are") {
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    std::atomic<std::int64_t> received = 0;
    Found found;
    run_on_threads(kind.make(3), [&](Transport& transport) {
      ClockExchange clocks(transport, rank_clock({"a", own}), in_seconds(600));
      const Bytes before = transport.received_bytes();
      clocks.measure(in_seconds(600));
      received += (transport.received_bytes() - before).value;
      if (transport.rank() == 0) found = {clocks.by_rank(), clocks.uncertainty(), clocks.warnings()};
    });
    CHECK(received == 0);
    CHECK(found.clocks == std::vector<HostClock>(3));
    CHECK(found.uncertainty == Seconds{0});
  }
}

TEST_CASE("a clock that is set between two measurements is said, one that is set back ends the run") {
  std::atomic<double> set = 0;
  const auto jumping = [&set](double now) { return now + set; };
  const TransportKind kind = transport_kinds().front();
  const Found found = exchange(kind, {{"a", own}, {"b", jumping}}, [&] { set = 2.5; });
  REQUIRE(found.warnings.size() == 1);
  CHECK_THAT(found.warnings[0], ContainsSubstring("the clock of rank 1 (on node-b) moved by 2.500 s"));
  CHECK(found.uncertainty >= Seconds{2.49});
  CHECK_THROWS_WITH(exchange(kind, {{"a", own}, {"b", jumping}}, [&] { set = -100; }),
                    ContainsSubstring("rank 1 (on node-b)") && ContainsSubstring("went back"));
}

// By hand, with exact clocks: rank 1's is 100 s ahead at its 200 and 101 s at its 301.
TEST_CASE("a rank's log is turned to rank 0's clock, its waits stay") {
  const HostClock clock{{.at = {200}, .offset = {100}, .uncertainty = {1e-6}},
                        {.at = {301}, .offset = {101}, .uncertainty = {1e-6}}};
  const Event event{
      .action = {ActionKind::forward, 0, 0}, .rank = 1, .start = {200}, .end = {301}, .waited = {3}, .bytes = {7}};
  RankLog log{.rank = 1, .steps = {{.start = {250.5}, .events = {event}, .peak_bytes = {}, .received_bytes = {}}}};
  RankLog same = log;
  turn_to_rank_0(log, clock);
  CHECK(log.steps[0].start.value == Approx(150));
  CHECK(log.steps[0].events[0].start.value == Approx(100));
  CHECK(log.steps[0].events[0].end.value == Approx(200));
  CHECK(log.steps[0].events[0].waited == Seconds{3});
  turn_to_rank_0(same, {});
  CHECK(same.steps[0].events[0] == event);
}
