#include "exec/transport/local/local.hpp"

#include <thread>

#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

// Only then does a timeline tell messages that were late from ranks that were busy.
TEST_CASE("a local message that was there arrived when it was sent, not when it was taken") {
  const auto transports = make_local_transports(2);
  transports[1]->expect(0, Channel::forward, 8, 1);
  transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 0, 8));
  const auto sent = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(transports[1]->receive(0, Channel::forward, in_seconds(1)).arrived <= sent);
}

TEST_CASE("a local message is handed over, not copied") {
  const auto transports = make_local_transports(2);
  const Payload sent = pattern(0, Channel::forward, 0, 1024);
  transports[0]->send(1, Channel::forward, sent);
  transports[1]->expect(0, Channel::forward, 1024, 1);
  const Received got = transports[1]->receive(0, Channel::forward, in_seconds(1));
  CHECK(got.payload.data == sent.data);
  CHECK(got.payload.owner == sent.owner);
}
