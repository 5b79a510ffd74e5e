// Chimera, DualPipe, BPipe and the V schedules: small orders by hand from the papers, refused shapes, DualPipe's steps.
#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("Chimera's figure 3: four ranks, microbatches 0 and 1 down, 2 and 3 up") {
  const Schedule schedule = generate_schedule("chimera", {.ranks = 4, .microbatches = 4});
  CHECK(schedule.rank_of_stage == std::vector<int>{0, 1, 2, 3});
  CHECK(schedule.second_rank_of_stage == std::vector<int>{3, 2, 1, 0});
  CHECK(to_text(schedule.actions[0]) == "0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1");
  CHECK(to_text(schedule.actions[1]) == "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1");
  CHECK(to_text(schedule.actions[2]) == "1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3");
  CHECK(to_text(schedule.actions[3]) == "0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3");
}

TEST_CASE("Chimera's units follow each other without a hole on the first rank") {
  const Schedule schedule = generate_schedule("chimera", {.ranks = 2, .microbatches = 4});
  CHECK(to_text(schedule.actions[0]) == "0F0 1F2 1B2 0B0 0F1 1F3 1B3 0B1");
  CHECK(to_text(schedule.actions[1]) == "0F2 1F0 1B0 0B2 0F3 1F1 1B1 0B3");
}

TEST_CASE("DualPipe on two ranks, step by step") {
  const Schedule schedule = generate_schedule("dualpipe", {.ranks = 2, .microbatches = 4});
  // h = 0, H = 1: step 2 once, step 4 once with the first pair apart, step 6 once with B0 split, step 8 once.
  CHECK(to_text(schedule.actions[0]) == "0F0 1F2 0F1 1B2 1F3 0B0 1B3 0I1 0W1");
  CHECK(to_text(schedule.actions[1]) == "0F2 1F0 0F3 1B0 1F1 0B2 1B1 0I3 0W3");
  REQUIRE(schedule.overlapped.size() == 2);
  CHECK(to_text({schedule.overlapped[0].first, schedule.overlapped[0].second}) == "1F1 0B2");
  CHECK(to_text({schedule.overlapped[1].first, schedule.overlapped[1].second}) == "1F3 0B0");
}

// Counts of DualPipe's eight steps, H = p/2, h = min(r, p−1−r): I in steps 3, 6 and 7; pairs in steps 4 and 5.
TEST_CASE("DualPipe: p/2 weight gradients apart on each rank, overlapped pairs as the steps say") {
  for (int p = 2; p <= 16; p += 2) {
    for (const int m : {2 * p, 2 * p + 2, 4 * p}) {
      const Schedule schedule = generate_schedule("dualpipe", {.ranks = p, .microbatches = m});
      CHECK(std::ranges::is_sorted(schedule.overlapped));
      std::size_t pairs = 0;
      for (int r = 0; r < p; ++r) {
        CAPTURE(p, m, r);
        const int half = p / 2;
        const int h = std::min(r, p - 1 - r);
        const auto& list = schedule.actions[static_cast<std::size_t>(r)];
        CHECK(std::ranges::count(list, ActionKind::weight_gradient, &Action::kind) == 2 * (half - h - 1) + h + 1);
        CHECK(std::ranges::count(list, ActionKind::forward, &Action::kind) == m);
        const int in_step_4 = 2 * (m / 2 - p + h + 1) - (h == half - 1 ? 1 : 0);
        pairs += static_cast<std::size_t>(in_step_4 + half - h - 1);
      }
      CHECK(schedule.overlapped.size() == pairs);
    }
  }
}

TEST_CASE("BPipe on four ranks: rank 0 may hold three microbatches, rank 3 keeps the fourth") {
  const Schedule schedule = generate_schedule("bpipe", {.ranks = 4, .microbatches = 6});
  CHECK(to_text(schedule.actions[0]) ==
        "0F0 0F1 0F2 0EVICT2 0F3 0B0 0F4 0EVICT4 0B1 0LOAD2 0F5 0B2 0B3 0LOAD4 0B4 0B5");
  CHECK(to_text(schedule.actions[1]) == "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5");
  CHECK(to_text(schedule.actions[2]) == "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5");
  CHECK(to_text(schedule.actions[3]) ==
        "0EVICT2 3F0 3B0 3F1 3B1 0LOAD2 3F2 3B2 3F3 3B3 0EVICT4 0LOAD4 3F4 3B4 3F5 3B5");
}

TEST_CASE("V-Half and V-Min stand in a V and have two chunks") {
  for (const char* name : {"v-half", "v-min"}) {
    CAPTURE(name);
    const Schedule schedule = generate_schedule(name, {.ranks = 2, .microbatches = 1, .chunks = 2});
    CHECK(schedule.rank_of_stage == std::vector<int>{0, 1, 1, 0});
    CHECK(to_text(schedule.actions[0]) == "0F0 3F0 3I0 3W0 0I0 0W0");
    CHECK(to_text(schedule.actions[1]) == "1F0 2F0 2I0 1I0 2W0 1W0");
    CHECK_THROWS_AS(generate_schedule(name, {.ranks = 2, .microbatches = 1, .chunks = 3}), InputError);
  }
}

TEST_CASE("shapes that two pipelines cannot share are refused with the nearest ones that they can") {
  CHECK_THROWS_WITH(generate_schedule("dualpipe", {.ranks = 5, .microbatches = 20}),
                    ContainsSubstring("schedule dualpipe") && ContainsSubstring("take 4 or 6 ranks"));
  CHECK_THROWS_WITH(generate_schedule("dualpipe", {.ranks = 4, .microbatches = 6}),
                    ContainsSubstring("2 per rank") && ContainsSubstring("take 8 microbatches or more"));
  CHECK_THROWS_WITH(generate_schedule("dualpipe", {.ranks = 4, .microbatches = 9}),
                    ContainsSubstring("take 8 or 10 microbatches"));
  CHECK_THROWS_WITH(generate_schedule("chimera", {.ranks = 1, .microbatches = 4}), ContainsSubstring("take 2 ranks"));
  CHECK_THROWS_WITH(generate_schedule("chimera", {.ranks = 3, .microbatches = 3}),
                    ContainsSubstring("schedule chimera") && ContainsSubstring("take 2 or 4 ranks"));
  CHECK_THROWS_WITH(generate_schedule("chimera", {.ranks = 4, .microbatches = 3}),
                    ContainsSubstring("take 4 microbatches"));
  CHECK_THROWS_WITH(generate_schedule("chimera", {.ranks = 4, .microbatches = 10}),
                    ContainsSubstring("take 8 or 12 microbatches"));
}
