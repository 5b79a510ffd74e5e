#include "exec/launch/signal_watch.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

template <class Condition>
bool comes(const Condition& condition) {
  for (int look = 0; look < 6000 && !condition(); ++look) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

std::atomic<int> handled = 0;
void count_handled(int /*signal*/) { ++handled; }

// Handler that stands in for the program's own while it lives.
class Outside {
 public:
  Outside() {
    handled = 0;
    struct sigaction counting = {};
    counting.sa_handler = count_handled;
    ::sigaction(SIGINT, &counting, &before_);
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
  ~Outside() { ::sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

}  // namespace

TEST_CASE("a signal stops all ranks with its name as the reason") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const auto transports = make_local_transports(3);
  const SignalWatch watch({.on_signal = [&](const std::string& reason) { transports[0]->abort(reason); }});
  const auto rank_main = [&](Transport& transport) {
    if (transport.rank() == 2) std::raise(signal);
    transport.expect(0, Channel::forward, 1, 1);
    (void)transport.receive(0, Channel::forward, in_seconds(600));
  };
  CHECK_THROWS_WITH(run_on_threads(transports, rank_main), ContainsSubstring(signal == SIGINT ? "SIGINT" : "SIGTERM"));
}

TEST_CASE("a signal ends work that asks, and the first signal stays the reason") {
  const SignalWatch watch;
  const Stop stop = watch.stop();
  CHECK_FALSE(stop.ended());
  CHECK(watch.reason().empty());
  std::raise(SIGINT);
  std::raise(SIGTERM);
  CHECK(stop.ended());
  CHECK(watch.reason() == "interrupted (SIGINT)");
  CHECK(watch.times() == 1);  // within a second they are one request
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  std::raise(SIGTERM);
  CHECK(watch.times() == 2);
}

TEST_CASE("the innermost of nested watches acts, and a later one inside the same sees the signal") {
  std::atomic<int> outer_acted = 0;
  std::atomic<int> inner_acted = 0;
  const Outside outside;
  {
    const SignalWatch outer({.on_signal = [&](const std::string&) { ++outer_acted; }});
    {
      const SignalWatch inner({.on_signal = [&](const std::string&) { ++inner_acted; }});
      std::raise(SIGINT);
      CHECK(comes([&] { return inner_acted == 1; }));
      CHECK(outer_acted == 0);
    }
    const SignalWatch later;
    CHECK(later.stop().ended());
  }
  CHECK(handled == 0);
  const SignalWatch next;
  CHECK_FALSE(next.stop().ended());
}

TEST_CASE("a signal that nobody acted on is raised again when the last watch ends") {
  const Outside outside;
  {
    const SignalWatch outer;
    const SignalWatch inner;
    std::raise(SIGINT);
    CHECK(handled == 0);
  }
  CHECK(handled == 1);
}

TEST_CASE("a watch reports that it is stuck after its grace, or at once with the second signal") {
  const bool twice = GENERATE(false, true);
  std::atomic<bool> stuck = false;
  const auto start = std::chrono::steady_clock::now();
  const SignalWatch watch({.on_stuck = [&](const std::string&) { stuck = true; },
                           .grace = [&] { return Seconds{twice ? 3600.0 : 0.3}; },
                           .twice_is_stuck = twice});
  std::raise(SIGTERM);
  if (twice) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    CHECK_FALSE(stuck);
    std::raise(SIGTERM);
  }
  CHECK(comes([&] { return stuck.load(); }));
  if (!twice) CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(300));
}
