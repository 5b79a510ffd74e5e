// What the fast way says is what the whole plan says: split, time and memory, over random families.
#include "common/search/fast_evaluator.hpp"

#include <optional>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/random_families.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::vector<std::string> all_schedules() {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (!entry.uses_times) names.push_back(entry.name);
  }
  return names;
}

template <class Weigh>
std::optional<Estimate> if_built(const Weigh& weigh) {
  try {
    return weigh();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Weighs one candidate both ways; false if it cannot be built.
bool compare(FastEvaluator& fast, const Scenario& scenario, const Family& family, SplitMethod method) {
  const SplitChoice split{.method = method};
  const auto expected = if_built([&] { return weigh_slowly(scenario, family, split); });
  const auto found = if_built([&] { return fast.weigh(family, split); });
  CAPTURE(family.schedule.name, family.schedule.chunks, family.schedule.slices, family.schedule.overlap,
          describe(family.layout), family.microbatch, scenario.training.global_batch,
          static_cast<int>(family.recompute.mode), static_cast<int>(scenario.software.exchange),
          static_cast<int>(scenario.software.recompute_unit), static_cast<int>(method));
  REQUIRE(found.has_value() == expected.has_value());
  if (!expected) return false;
  REQUIRE(describe(found->split) == describe(expected->split));
  REQUIRE(found->iteration.value == Approx(expected->iteration.value).epsilon(1e-9).margin(0));
  REQUIRE(found->fits == expected->fits);
  REQUIRE(found->peak_bytes.value >= expected->peak_bytes.value);
  if (found->exact) {
    REQUIRE(found->peak_bytes.value == expected->peak_bytes.value);
    REQUIRE(found->fullest_rank == expected->fullest_rank);
  }
  return true;
}

}  // namespace

TEST_CASE("over random families of every schedule the fast way says what the whole plan says") {
  int built = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomFamilies random(seed);
    const Scenario scenario = random.scenario();
    FastEvaluator fast(scenario);
    CAPTURE(seed);
    for (int n = 0; n < 30; ++n) {
      const Family family = random.family(all_schedules());
      for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::parameters, SplitMethod::dynamic}) {
        // The dynamic split of ranks with several stages takes the slow way seconds.
        if (method == SplitMethod::dynamic && family.schedule.chunks > 1 && n % 5 != 0) continue;
        built += compare(fast, scenario, family, method) ? 1 : 0;
      }
    }
  }
  CHECK(built > 500);
}
