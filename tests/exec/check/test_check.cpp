// What a check says of itself while it goes on.
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "exec/check/check.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Of one step; it ends before it compares, since no gradient is given.
void check_one_step(int microbatches, const Progress::Clock& clock) {
  const Plan plan =
      test::training_plan({.model = test::llama(2), .schedule = "1f1b", .ranks = 1, .microbatches = microbatches});
  CHECK_THROWS_WITH(check_against_reference(plan, {}, {0.0}, {}, CheckWatch{.clock = clock}),
                    ContainsSubstring("has no gradient of"));
}

// All that `work` writes to stderr while that is a terminal.
template <class Work>
std::string on_terminal(const Work& work) {
  int terminal = -1;
  int end = -1;
  if (::openpty(&terminal, &end, nullptr, nullptr, nullptr) != 0) return "";
  std::string text;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(terminal, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
  });
  const int before = ::dup(STDERR_FILENO);
  ::dup2(end, STDERR_FILENO);
  ::close(end);
  work();
  ::dup2(before, STDERR_FILENO);  // the last to hold it: the reader ends
  ::close(before);
  reader.join();
  ::close(terminal);
  return text;
}

}  // namespace

TEST_CASE("a check on a terminal says how far it is while its first step still goes on") {
  // A clock that goes on by 0.3 s whenever it is read: when the check begins, and after each microbatch. Shown is what
  // is done after one second.
  std::chrono::steady_clock::time_point now;
  const auto clock = [&] { return now += std::chrono::milliseconds(300); };
  const std::string shown = on_terminal([&] { check_one_step(6, clock); });
  if (shown.empty()) {
    WARN("skipped: no pseudo-terminals here");
    return;
  }
  // Of this step, and as many microbatches once more in fp64.
  std::vector<std::string> done;
  const std::regex line("checking against a single device: microbatches: ([0-9]+) of 12");
  for (std::sregex_iterator found(shown.begin(), shown.end(), line), none; found != none; ++found) {
    done.push_back((*found)[1]);
  }
  CHECK(done == std::vector<std::string>{"4", "5", "6"});
}

TEST_CASE("a check that is told to end does so at the next microbatch") {
  for (const char* const schedule : {"1f1b", "pipedream"}) {  // one update a step, and several
    CAPTURE(schedule);
    const Plan plan =
        test::training_plan({.model = test::llama(2), .schedule = schedule, .ranks = 2, .microbatches = 6});
    std::atomic<bool> told = false;
    int looks = 0;
    const Stop stop = Stop(&told, std::nullopt).looked_at_by([&] { told = ++looks == 3; });
    CHECK_THROWS_AS(check_against_reference(plan, {}, {0.0}, {}, CheckWatch{.stop = stop}), plumb::Stopped);
    CHECK(looks == 3);
  }
}
