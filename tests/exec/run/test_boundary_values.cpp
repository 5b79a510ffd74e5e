// Values between a rank's stages: each is there once, is taken once, and what is left is told.
#include "exec/run/boundary_values.hpp"

#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

ValueKey key_of(int stage, int microbatch, Channel channel = Channel::forward) {
  return {.channel = channel, .stage = stage, .microbatch = microbatch};
}

}  // namespace

TEST_CASE("values come back by their names, in whatever order they are taken") {
  BoundaryValues values;
  std::vector<ValueKey> keys;
  for (const int microbatch : {0, 1, 2}) {
    for (const Channel channel : {Channel::forward, Channel::backward}) keys.push_back(key_of(1, microbatch, channel));
  }
  const auto value_of = [](const ValueKey& key) { return pattern(key.stage, key.channel, key.microbatch, 16); };
  for (const ValueKey& key : keys) values.put(key, value_of(key));
  for (const std::size_t i : {2U, 0U, 5U, 4U, 1U, 3U}) {
    INFO(i);
    CHECK(same_bytes(values.take(keys[i]), value_of(keys[i])));
    CHECK_THROWS_WITH(values.take(keys[i]), ContainsSubstring("is not there"));
  }
  CHECK_NOTHROW(values.require_none());
}

TEST_CASE("a value that is there twice, not at all, or never used is named") {
  BoundaryValues values;
  values.put(key_of(3, 1), {});
  CHECK_THROWS_WITH(values.put(key_of(3, 1), {}),
                    ContainsSubstring("a value for stage 3, microbatch 1 is already there"));
  CHECK_THROWS_WITH(values.take(key_of(3, 1, Channel::backward)),
                    ContainsSubstring("the output gradient for stage 3, microbatch 1 is not there"));
  values.put(key_of(0, 7, Channel::backward), {});
  values.put(key_of(2, 5), {});
  // By channel, then by stage.
  CHECK_THROWS_WITH(values.require_none(),
                    ContainsSubstring("3 values were never used, the first for stage 2, microbatch 5"));
  values.clear();
  CHECK_NOTHROW(values.require_none());
}
