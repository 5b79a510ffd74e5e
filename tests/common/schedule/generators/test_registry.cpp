#include "common/schedule/generators/registry.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("orders of small schedules, by hand from the papers") {
  const Schedule gpipe = generate_schedule("gpipe", {.ranks = 2, .microbatches = 2});
  CHECK(to_text(gpipe.actions[0]) == "0F0 0F1 0B0 0B1");
  CHECK(to_text(gpipe.actions[1]) == "1F0 1F1 1B0 1B1");
  // DAPPLE, figure 3: three ranks.
  const Schedule one = generate_schedule("1f1b", {.ranks = 3, .microbatches = 4});
  CHECK(to_text(one.actions[0]) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  CHECK(to_text(one.actions[1]) == "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
  CHECK(to_text(one.actions[2]) == "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
  // Zero-bubble paper, figure 3 with p = 2.
  const Schedule zb = generate_schedule("zb-h1", {.ranks = 2, .microbatches = 3});
  CHECK(to_text(zb.actions[0]) == "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
  CHECK(to_text(zb.actions[1]) == "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2");
  // Megatron-LM's table with p = g = 2, m = 2, v = 2.
  const Schedule interleaved = generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 2, .chunks = 2});
  CHECK(interleaved.rank_of_stage == std::vector<int>{0, 1, 0, 1});
  CHECK(to_text(interleaved.actions[0]) == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
  CHECK(to_text(interleaved.actions[1]) == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1");
}

TEST_CASE("shapes outside a schedule's range are refused and say what is allowed") {
  CHECK_THROWS_WITH(
      generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = 9, .chunks = 2}),
      ContainsSubstring("9 microbatches on 4 ranks would go in 2 groups") && ContainsSubstring("8 or 12"));
  CHECK_THROWS_WITH(generate_schedule("1f1b", {.ranks = 4, .microbatches = 9, .chunks = 2}),
                    ContainsSubstring("2 chunks per rank") && ContainsSubstring("interleaved-1f1b"));
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    CHECK_THROWS_AS(entry.generate({.ranks = 0, .microbatches = 1}), InputError);
    CHECK_THROWS_AS(entry.generate({.ranks = 1, .microbatches = -3}), InputError);
    CHECK_THROWS_AS(entry.generate({.ranks = 1, .microbatches = 1, .chunks = 0}), InputError);
    CHECK_THROWS_AS(entry.generate({.ranks = 2147483647, .microbatches = 2147483647}), InputError);
  }
}

TEST_CASE("a misspelt schedule is refused with a suggestion") {
  CHECK(find_schedule("zb-h1").splits_backward);
  CHECK(find_schedule("interleaved-1f1b").uses_chunks);
  CHECK_THROWS_WITH(find_schedule("1f1p"), ContainsSubstring("did you mean '1f1b'?"));
}

// What searches take from an entry instead of the lists, against the lists.
TEST_CASE("entries say how many microbatches ranks hold and whether two replicas are trained as the lists do") {
  int with_held = 0;
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    for (const int ranks : {2, 4, 6}) {
      for (const int microbatches : {1, 3, 12, 16, 23, 24}) {
        const int chunks = entry.fixed_chunks > 0 ? entry.fixed_chunks : entry.chunk_multiple;
        const int barriers = entry.divides_vocabulary ? microbatches % 3 : 0;
        const ScheduleShape shape{
            .ranks = ranks, .microbatches = microbatches, .chunks = chunks, .vocabulary_barriers = barriers};
        Schedule schedule;
        try {
          schedule = entry.generate(shape);
        } catch (const InputError&) {
          continue;
        }
        CHECK(entry.trains_replicas == (replicas(schedule) == 2));
        if (!entry.most_held) continue;
        ++with_held;
        for (int rank = 0; rank < ranks; ++rank) {
          int held = 0;
          int most = 0;
          for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
            if (is_part(schedule, action.stage)) continue;
            held += action.kind == ActionKind::forward ? 1 : 0;
            most = std::max(most, held);
            held -= action.kind == ActionKind::backward || action.kind == ActionKind::input_gradient ? 1 : 0;
          }
          CHECK(entry.most_held(shape, rank) == most);
        }
      }
    }
  }
  CHECK(with_held >= 3 * 12);
}
