// What a check says of itself while it goes on.
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Of one step; it ends before it compares, since no gradient is given.
void check_one_step(int microbatches) {
  const Plan plan =
      test::training_plan({.model = test::llama(2), .schedule = "1f1b", .ranks = 1, .microbatches = microbatches});
  CHECK_THROWS_WITH(check_against_reference(plan, {}, {0.0}, {}), ContainsSubstring("has no gradient of"));
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
  // As many microbatches as take about 2.5 s here: after one second it is to be shown.
  constexpr int few = 20;
  // A run comes before its check: its ranks set the number of threads, of which the first operation of any thread takes
  // its own.
  (void)test::train(test::training_plan({.model = test::llama(2), .schedule = "1f1b", .ranks = 1}), 1,
                    make_local_transports);
  check_one_step(few);  // whatever is done once only
  const auto begin = std::chrono::steady_clock::now();
  check_one_step(few);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const int microbatches = static_cast<int>(2.5 / taken.count() * few) + 1;
  const std::string shown = on_terminal([&] { check_one_step(microbatches); });
  if (shown.empty()) {
    WARN("skipped: no pseudo-terminals here");
    return;
  }
  // Of this step, and as many microbatches once more in fp64.
  const std::regex line("checking against a single device: microbatches: ([0-9]+) of " +
                        std::to_string(2 * microbatches));
  int last = 0;
  int lines = 0;
  for (std::sregex_iterator found(shown.begin(), shown.end(), line), none; found != none; ++found, ++lines) {
    const int done = std::stoi((*found)[1]);
    CHECK(done > last);
    CHECK(done <= microbatches);
    last = done;
  }
  CHECK(lines >= 2);
}
