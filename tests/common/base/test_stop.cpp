// Work that is told to end ends: at once by the flag, at its time by the clock, and never without either.
#include "common/base/stop.hpp"

#include <limits>

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("a stop ends by its flag or by its time, and checks throw from then on") {
  std::atomic<bool> flag = false;
  const auto now = std::chrono::steady_clock::now();
  const Stop by_flag(&flag, std::nullopt);
  CHECK_FALSE(by_flag.ended());
  CHECK_NOTHROW(by_flag.check());
  flag = true;
  CHECK(by_flag.ended());
  CHECK_THROWS_AS(by_flag.check(), Stopped);
  CHECK(Stop(nullptr, now).ended());
  CHECK_FALSE(Stop(nullptr, now + std::chrono::hours(1)).ended());
  CHECK_FALSE(Stop().ended());
}

TEST_CASE("a watch looks every few thousand turns, without a stop never") {
  const std::atomic<bool> flag = true;
  const Stop stop(&flag, std::nullopt);
  StopWatch watch(&stop);
  int turns = 0;
  const auto work = [&] {
    for (; turns < 10'000; ++turns) watch.turn();
  };
  CHECK_THROWS_AS(work(), Stopped);
  CHECK(turns > 0);
  CHECK(turns < 10'000);
  StopWatch unwatched(nullptr);
  for (int n = 0; n < 10'000; ++n) unwatched.turn();
}

TEST_CASE("a time limit beyond the clock is none, and one of nothing or less is over at once") {
  using Seconds = std::chrono::duration<double>;
  const auto ended = [](double seconds) { return Stop(nullptr, deadline_after(Seconds(seconds))).ended(); };
  for (const double endless : {1e10, 1e99, std::numeric_limits<double>::infinity()}) {
    CHECK_FALSE(ended(endless));
    CHECK(ended(-endless));
  }
  CHECK_FALSE(ended(std::numeric_limits<double>::quiet_NaN()));
  CHECK(ended(0));
  CHECK(ended(-1));
  CHECK_FALSE(ended(3600));
}

TEST_CASE("an observed stop reports progress when asked, its original stays silent") {
  int looks = 0;
  const std::atomic<bool> flag = true;
  const Stop quiet(&flag, std::nullopt);
  const Stop shown = quiet.looked_at_by([&] { ++looks; });
  CHECK(quiet.ended());
  CHECK(looks == 0);
  CHECK(shown.ended());
  CHECK_THROWS_AS(shown.check(), Stopped);
  CHECK(looks == 2);
}
