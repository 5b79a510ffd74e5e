// Lines of progress in a log: how often, and by whose wish.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "common/base/program.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace std::chrono_literals;

namespace {

// What an hour of work writes, told of its progress every second; `asked` is PLUMB_PROGRESS.
std::string hour_of_log(const char* asked) {
  ::setenv("PLUMB_PROGRESS", asked, 1);
  std::ostringstream log;
  std::streambuf* const before = std::cerr.rdbuf(log.rdbuf());
  std::chrono::steady_clock::time_point now{};
  {
    Progress progress("working", [&now] { return now; });
    for (int second = 0; second <= 3600; ++second) {
      now = std::chrono::steady_clock::time_point(std::chrono::seconds(second));
      progress.update(second, 3600);
    }
  }
  std::cerr.rdbuf(before);
  ::unsetenv("PLUMB_PROGRESS");
  return log.str();
}

}  // namespace

TEST_CASE("a log has a line of progress every ten seconds, every five if asked for, none if that is wished") {
  if (is_terminal(Stream::err)) return;  // there it is one line, rewritten
  CHECK_THAT(hour_of_log(""), Catch::Matchers::StartsWith("working: 10 of 3600\nworking: 20 of 3600\n"));
  CHECK_THAT(hour_of_log("often"), Catch::Matchers::StartsWith("working: 5 of 3600\nworking: 10 of 3600\n"));
  CHECK(hour_of_log("off").empty());
}
