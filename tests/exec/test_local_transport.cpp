#include "exec/transport/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("a local message is handed over, not copied") {
  const auto transports = make_local_transports(2);
  const Payload sent = pattern(0, Channel::forward, 0, 1024);
  transports[0]->send(1, Channel::forward, sent);
  transports[1]->expect(0, Channel::forward, 1024, 1);
  const Received got = transports[1]->receive(0, Channel::forward, in_seconds(1));
  CHECK(got.payload.data == sent.data);
  CHECK(got.payload.owner == sent.owner);
}
