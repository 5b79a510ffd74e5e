// Offsets and turned times against closed forms: ways of known length, clocks of known drift.
#include "exec/host/host_clock.hpp"

#include <cmath>
#include <vector>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr double ahead = 1234.5;  // s, of the host's clock at time 0 of rank 0's
constexpr double drift = 5e-5;    // s per s

// The host's clock when rank 0's shows `time`.
Seconds hosts(double time) { return {ahead + time * (1 + drift)}; }

RoundTrip trip(double sent, double there, double back) {
  return {.sent = {sent}, .answered = hosts(sent + there), .returned = {sent + there + back}};
}

}  // namespace

// With ways of `there` and `back` the midpoint is off by (there − back) / 2: Cristian's bound is reached when one is 0.
TEST_CASE("the offset is off by half the difference of the two ways, and never by more than it says") {
  for (const double there : {0.0, 10e-6, 30e-6, 200e-6}) {
    for (const double back : {0.0, 10e-6, 30e-6, 200e-6}) {
      INFO("there " << there << ", back " << back);
      const std::vector<RoundTrip> trips{trip(50, there, back)};
      const ClockOffset found = clock_offset(trips);
      const double truth = found.at.value - (50 + there);
      CHECK(std::abs((found.offset.value - truth) - (there - back) / 2) < 1e-9);
      CHECK(std::abs(found.uncertainty.value - (there + back) / 2) < 1e-9);
      CHECK(std::abs(found.offset.value - truth) <= found.uncertainty.value + 1e-9);
    }
  }
}

TEST_CASE("only the trip that took least counts: slow ones, however lopsided, do not move it") {
  std::vector<RoundTrip> trips;
  for (int i = 0; i < 50; ++i) trips.push_back(trip(i * 1e-3, 40e-6 + i * 7e-4, 40e-6));
  trips.insert(trips.begin() + 20, trip(0.5, 11e-6, 11e-6));
  const ClockOffset found = clock_offset(trips);
  CHECK(found.at.value == Approx(hosts(0.5 + 11e-6).value));
  CHECK(std::abs(found.offset.value - (ahead + drift * (0.5 + 11e-6))) < 1e-9);
  CHECK(found.uncertainty.value == Approx(11e-6));
}

TEST_CASE("between measurements drift is linear: times of a clock that runs fast come back to rank 0's") {
  HostClock clock;
  for (const double time : {10.0, 70.0, 600.0}) {
    const std::vector<RoundTrip> trips{trip(time, 20e-6, 20e-6)};
    add_measurement(clock, clock_offset(trips));
  }
  for (const double time : {10.1, 69.0, 70.1, 333.3, 599.9}) {
    CHECK(std::abs(on_rank_0(clock, hosts(time)).value - time) < 1e-9);
  }
  // Half of them alone do so, too: it is the drift, not the number of measurements.
  clock.erase(clock.begin() + 1);
  CHECK(std::abs(on_rank_0(clock, hosts(333.3)).value - 333.3) < 1e-9);
  CHECK(jump(clock) == Seconds{0});
  CHECK(uncertainty(clock).value == Approx(20e-6));
  // Outside of the measurements the nearest counts.
  CHECK(std::abs(on_rank_0(clock, hosts(9)).value - (9 - drift)) < 1e-6);
  CHECK(std::abs(on_rank_0(clock, hosts(602)).value - (602 + 2 * drift)) < 1e-6);
  CHECK(on_rank_0({}, {17}) == Seconds{17});
  CHECK(uncertainty({}) == Seconds{0});
}

TEST_CASE("a clock that jumps is told from one that drifts, and makes its times uncertain by as much") {
  const auto clock = [](double later, double change) {
    return HostClock{{.at = {100}, .offset = {3}, .uncertainty = {1e-5}},
                     {.at = {100 + later}, .offset = {3 + change}, .uncertainty = {2e-5}}};
  };
  for (const double sign : {1.0, -1.0}) {
    CHECK(jump(clock(10, sign * (10 * most_drift + 2.9e-5))) == Seconds{0});
    CHECK(jump(clock(10, sign * (10 * most_drift + 3.1e-5))).value == Approx(10 * most_drift + 3.1e-5));
    CHECK(uncertainty(clock(10, sign * 1.5)).value == Approx(1.5 + 2e-5));
  }
}

TEST_CASE("clocks that go back are refused: of a host between two measurements, of rank 0 within a trip") {
  HostClock clock{{.at = {100}, .offset = {3}, .uncertainty = {1e-5}}};
  CHECK_THROWS_WITH(add_measurement(clock, {.at = {99}, .offset = {2}, .uncertainty = {1e-5}}),
                    ContainsSubstring("the clock of a host went back"));
  CHECK(clock.size() == 1);
  const std::vector<RoundTrip> trips{{.sent = {5}, .answered = {9}, .returned = {4}}};
  CHECK_THROWS_WITH(clock_offset(trips), ContainsSubstring("rank 0's clock went back"));
  CHECK_THROWS_AS(clock_offset({}), RunError);
}
