#include "exec/launch/launch.hpp"

#include <atomic>
#include <csignal>
#include <thread>

#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("a signal stops all ranks with its name as the reason") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const auto transports = make_local_transports(3);
  const SignalWatch watch([&](const std::string& reason) { transports[0]->abort(reason); });
  const auto rank_main = [&](Transport& transport) {
    if (transport.rank() == 2) std::raise(signal);
    transport.expect(0, Channel::forward, 1, 1);
    (void)transport.receive(0, Channel::forward, in_seconds(600));
  };
  CHECK_THROWS_WITH(run_on_threads(transports, rank_main), ContainsSubstring(signal == SIGINT ? "SIGINT" : "SIGTERM"));
}

TEST_CASE("work that asks is ended by a signal, and the first that came stays the reason") {
  {
    const SignalWatch watch;
    const Stop stop = watch.stop();
    CHECK_FALSE(stop.ended());
    CHECK(watch.reason().empty());
    std::raise(SIGINT);
    std::raise(SIGTERM);
    CHECK(stop.ended());
    CHECK(watch.reason() == "interrupted (SIGINT)");
  }
  // What came too late for the one before is acted on by the next that wants it, and by no other.
  CHECK_FALSE(SignalWatch(nullptr, true).reason().empty());
  const SignalWatch next;
  CHECK_FALSE(next.stop().ended());
}
