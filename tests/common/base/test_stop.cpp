// Work that is told to end ends: at once by the flag, at its time by the clock, and never without either.
#include "common/base/stop.hpp"

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
