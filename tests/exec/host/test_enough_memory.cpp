// What a machine says of its memory, and what is refused for want of it.
#include "exec/host/enough_memory.hpp"

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("needed memory is compared with available memory, naming machine, place and both amounts") {
  const MemoryNeed need{.where = "big-plan",
                        .what = "its 8 ranks here take",
                        .made_for = "dgx-h100 with H100",
                        .bytes = {int64_t{3} << 40},
                        .hint = "take a smaller one"};
  CHECK_NOTHROW(require_memory(need, {.where = "this host (a)", .bytes = need.bytes}));
  CHECK_NOTHROW(require_memory(need, {.where = "this host (a)", .bytes = {}}));
  CHECK_THROWS_WITH(require_memory(need, {.where = "this host (a)", .bytes = Bytes{need.bytes.value - 1}}),
                    ContainsSubstring("big-plan: made for dgx-h100 with H100: its 8 ranks here take") &&
                        ContainsSubstring("and this host (a), on which it runs, has") &&
                        ContainsSubstring("take a smaller one"));
  CHECK_THROWS_AS(require_memory(need, {.where = "a", .bytes = Bytes{0}}), InputError);
}

TEST_CASE("plans that alternate need the states of both, and of what they hold beside the larger") {
  const Plan plan = tiny_plan({});
  const Bytes one = memory_of_ranks({&plan}, {0});
  const Bytes both = memory_of_ranks({&plan}, {0, 1});
  CHECK(one > Bytes{0});
  CHECK(both > one);
  const ComputeCost& stage = plan.costs.stages.front();
  const Bytes states = stage.parameter_bytes + stage.gradient_bytes + stage.optimizer_bytes;
  CHECK(one > states);
  CHECK(memory_of_ranks({&plan, &plan}, {0}) == one + states);
}

TEST_CASE("a rank of several pipelines holds what its place in its own pipeline does") {
  const Plan one = tiny_plan({});
  const Plan two = tiny_plan({.data = 2});
  // By default ranks 0 and 1 are the first stage's.
  for (const int rank : {0, 1, 2, 3}) CHECK(memory_of_ranks({&two}, {rank}) == memory_of_ranks({&one}, {rank / 2}));
  CHECK(memory_of_ranks({&two}, {0, 1, 2, 3}) == memory_of_ranks({&one}, {0, 1}) * 2);
}
