#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/validate/validate.hpp"
#include "exec/commands/faults.hpp"
#include "exec/commands/ratios.hpp"
#include "tests/catch.hpp"
#include "tests/exec/plans.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("each fault makes a valid schedule invalid") {
  const std::string name = GENERATE("gpipe", "1f1b", "zb-h1");
  const Schedule lowered =
      lower(emulated_plan({.schedule = name, .shape = {.ranks = 3, .microbatches = 6}}).schedule, {});
  REQUIRE(validate(lowered).empty());
  for (const std::string& fault : fault_names()) {
    CAPTURE(name, fault);
    CHECK_FALSE(validate(with_fault(lowered, fault)).empty());
  }
  CHECK_THROWS_WITH(with_fault(lowered, "swaped-receive"), ContainsSubstring("swapped-receive"));
}

TEST_CASE("a fault that has no place is refused") {
  const Schedule alone = lower(emulated_plan({.shape = {.ranks = 1, .microbatches = 2}}).schedule, {});
  CHECK_THROWS_AS(with_fault(alone, "swapped-receive"), InputError);
}

// By hand: ratios 0.5, 0.8, 1.0, 1.1, 2.0.
TEST_CASE("ratios are paired step by step, and quartiles tell their spread") {
  const std::vector<Seconds> base{{2}, {1}, {5}, {1}, {10}};
  const std::vector<Seconds> times{{4}, {0.5}, {4}, {1}, {11}};
  const RatioSpread spread = paired_ratios(base, times);
  CHECK(spread.median == Approx(1.0));
  CHECK(spread.low == Approx(0.8));
  CHECK(spread.high == Approx(1.1));
  CHECK(paired_ratios({{4}}, {{3}}) == RatioSpread{.median = 0.75, .low = 0.75, .high = 0.75});
  CHECK(paired_ratios({{1}, {1}}, {{1}, {2}}).median == Approx(1.5));
}
