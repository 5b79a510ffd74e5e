#include "exec/host/pauses.hpp"

#include <thread>

#include "tests/catch.hpp"

using namespace plumb::exec;
using namespace std::chrono_literals;

TEST_CASE("a gap between two looks that is longer than a busy host makes is no time") {
  PauseCount count;
  const Clock::time_point start = Clock::now();
  CHECK(count.unpaused(start + 1h) == start + 1h);  // nobody looks: nothing is known of pauses
  count.look(start);
  for (int i = 1; i <= 10; ++i) count.look(start + i * 50ms);
  count.look(start + 700ms);  // late by 150 ms: so busy a host may be
  CHECK(count.unpaused(start + 700ms) == start + 700ms);
  // Who reads before the next look is told the same as the look finds: of the gap 250 ms count.
  const Clock::time_point awake = start + 700ms + 1h;
  CHECK(count.unpaused(awake) == start + 950ms);
  count.look(awake);
  CHECK(count.unpaused(awake) == start + 950ms);
  CHECK(count.unpaused(awake + 40ms) == start + 990ms);
  count.look(awake + 50ms);
  count.look(awake + 50ms + 2s);  // another adds up
  CHECK(count.unpaused(awake + 50ms + 2s) == start + 1000ms + 250ms);
  count.stop_looking();
  CHECK(count.unpaused(awake + 1h) == start + 950ms + 1h - 1750ms);
}

TEST_CASE("unpaused time never goes back") {
  PauseCount count;
  const Clock::time_point start = Clock::now();
  Clock::time_point last = count.unpaused(start);
  for (int i = 0; i < 2000; ++i) {
    const Clock::time_point now = start + i * 7ms;
    if (i % 13 == 0 && (i / 200) % 2 == 0) count.look(now);  // every 91 ms, and in between not for 1.4 s
    const Clock::time_point unpaused = count.unpaused(now);
    CHECK(unpaused >= last);
    last = unpaused;
  }
  CHECK(last < start + 2000 * 7ms - 4s);
}

TEST_CASE("a sleeper wakes by its deadline") {
  const PauseWatch watch;
  watch.look();
  const Clock::time_point deadline = unpaused_now() + 100ms;
  CHECK_FALSE(has_passed(deadline));
  CHECK(wake_at(Clock::time_point::max()) <= Clock::now() + 2h);
  std::this_thread::sleep_until(wake_at(deadline));
  CHECK(has_passed(deadline));
}
