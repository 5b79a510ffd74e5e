// The generated lists themselves: orders by hand from the papers, validity over shapes, what is refused.
#include "common/schedule/generators/generators.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

namespace {

constexpr const char* names[] = {"gpipe",    "1f1b",     "eager-1f1b", "interleaved-1f1b", "breadth-first",
                                 "zb-h1",    "zb-h2",    "zb-v",       "interleaved-zb",   "v-half",
                                 "v-min",    "dualpipe", "dualpipe-v", "chimera",          "hanayo",
                                 "seq-1f1b", "bpipe",    "pipedream",  "pipedream-2bw"};

}  // namespace

TEST_CASE(
    "every schedule is valid over PyTorch's grid, as generated and lowered, and is refused where it is not defined") {
  for (const char* name : names) {
    const ScheduleEntry& entry = find_schedule(name);
    for (const GridShape& shape : pytorch_grid) {
      CAPTURE(name, shape.ranks, shape.microbatches, shape.chunks);
      if (applies(entry, shape)) {
        const Schedule schedule = entry.generate(shape_for(entry, shape));
        CHECK(validate(schedule).empty());
        CHECK(validate(lower(schedule, {})).empty());
      } else {
        CHECK_THROWS_AS(entry.generate(shape_for(entry, shape)), InputError);
      }
    }
  }
}

TEST_CASE("every schedule is valid for few microbatches and few ranks") {
  for (const char* name : names) {
    const ScheduleEntry& entry = find_schedule(name);
    for (int p = 1; p <= 9; ++p) {
      for (int m = 1; m <= 2 * p; ++m) {
        for (const int v : {1, 2, 3, 4}) {
          CAPTURE(name, p, m, v);
          if (!applies(entry, {v, m, p})) continue;
          if (entry.uses_group && m % std::max(1, m / p) != 0) continue;
          const Schedule schedule = entry.generate(shape_for(entry, {v, m, p}));
          CHECK(validate(schedule).empty());
          if (!entry.uses_chunks && !entry.uses_slices) break;
        }
      }
    }
  }
}

TEST_CASE("weight gradients of a stage add up in the order of the microbatches, slices in reverse, in every schedule") {
  // Execution is compared bitwise with a single device that adds in this order.
  for (const char* name : names) {
    const ScheduleEntry& entry = find_schedule(name);
    for (const GridShape& shape : pytorch_grid) {
      if (!applies(entry, shape)) continue;
      CAPTURE(name, shape.ranks, shape.microbatches, shape.chunks);
      const Schedule schedule = entry.generate(shape_for(entry, shape));
      std::map<std::pair<int, int>, int> last;  // by stage and replica
      bool ascending = true;
      for (const auto& list : schedule.actions) {
        for (const Action& action : list) {
          if (action.kind != ActionKind::backward && action.kind != ActionKind::weight_gradient) continue;
          const int n = schedule.slices;
          const int place = action.microbatch / n * n + (n - 1 - action.microbatch % n);
          const auto [found, first] = last.try_emplace({action.stage, replica_of(schedule, action.microbatch)}, place);
          ascending = ascending && (first || found->second < place);
          found->second = place;
        }
      }
      CHECK(ascending);
    }
  }
}

TEST_CASE("orders of eager 1F1B, ZB-H2, ZB-V and Seq1F1B, by hand from the papers") {
  const Schedule eager = generate_schedule("eager-1f1b", {.ranks = 2, .microbatches = 4});
  CHECK(to_text(eager.actions[0]) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  CHECK(to_text(eager.actions[1]) == "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
  const Schedule h2 = generate_schedule("zb-h2", {.ranks = 2, .microbatches = 3});
  CHECK(to_text(h2.actions[0]) == "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2");
  CHECK(to_text(h2.actions[1]) == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2");
  const Schedule v = generate_schedule("zb-v", {.ranks = 2, .microbatches = 3, .chunks = 2});
  CHECK(v.rank_of_stage == std::vector<int>{0, 1, 1, 0});
  CHECK(to_text(v.actions[0]) == "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2");
  CHECK(to_text(v.actions[1]) == "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
  // Units of two slices: microbatch k is 2k and 2k+1.
  const Schedule seq = generate_schedule("seq-1f1b", {.ranks = 2, .microbatches = 2, .slices = 2});
  CHECK(seq.microbatches == 4);
  CHECK(to_text(seq.actions[0]) == "0F0 0F1 0F2 0B1 0F3 0B0 0B3 0B2");
  CHECK(to_text(seq.actions[1]) == "1F0 1F1 1B1 1F2 1B0 1F3 1B3 1B2");
}

TEST_CASE("orders of breadth-first, interleaved zero bubble, Hanayo and DualPipeV, by hand") {
  const Schedule breadth = generate_schedule("breadth-first", {.ranks = 2, .microbatches = 2, .chunks = 2});
  CHECK(to_text(breadth.actions[1]) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
  const Schedule zero = generate_schedule("interleaved-zb", {.ranks = 2, .microbatches = 2, .chunks = 2});
  CHECK(to_text(zero.actions[0]) == "0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1");
  CHECK(to_text(zero.actions[1]) == "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1");
  // Hanayo's figure 4: two devices, one wave.
  const Schedule hanayo = generate_schedule("hanayo", {.ranks = 2, .microbatches = 2, .chunks = 2});
  CHECK(hanayo.rank_of_stage == std::vector<int>{0, 1, 1, 0});
  CHECK(to_text(hanayo.actions[0]) == "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1");
  CHECK(to_text(hanayo.actions[1]) == "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1");
  const Schedule dual = generate_schedule("dualpipe-v", {.ranks = 2, .microbatches = 4, .chunks = 2});
  CHECK(to_text(dual.actions[0]) == "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
  CHECK(to_text(dual.actions[1]) == "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
  std::string pairs;
  for (const OverlappedPair& pair : dual.overlapped) pairs += to_text({pair.first, pair.second}) + "; ";
  CHECK(pairs == "0F3 3B1; 1F3 2B1; 2F2 1B0; 2F3 1B1; 3F2 0B0; 3F3 0B1; ");
}

TEST_CASE("overlapped pairs stand next to each other, forward first, each action in one pair at most") {
  for (int p = 1; p <= 10; ++p) {
    for (int m = 2 * p; m <= 2 * p + 6; ++m) {
      CAPTURE(p, m);
      const Schedule schedule = generate_schedule("dualpipe-v", {.ranks = p, .microbatches = m, .chunks = 2});
      CHECK(std::ranges::is_sorted(schedule.overlapped));
      std::set<Action> seen;
      for (const OverlappedPair& pair : schedule.overlapped) {
        CHECK(pair.first.kind == ActionKind::forward);
        CHECK(pair.second.kind == ActionKind::backward);
        CHECK(seen.insert(pair.first).second);
        CHECK(seen.insert(pair.second).second);
        const auto& list = schedule.actions[static_cast<std::size_t>(rank_of(schedule, pair.first.stage, 0))];
        const auto found = std::ranges::find(list, pair.first);
        REQUIRE(found != list.end());
        REQUIRE(found + 1 != list.end());
        CHECK(*(found + 1) == pair.second);
      }
      // Step 4 has 2(m−2p+r+1) on rank r and step 5 p−r−1; the last rank's first one is taken apart.
      int expected = -1;
      for (int r = 0; r < p; ++r) expected += 2 * (m - 2 * p + r + 1) + p - r - 1;
      CHECK(static_cast<int>(schedule.overlapped.size()) == expected);
    }
  }
}

TEST_CASE("groups of interleaved 1F1B: Megatron-LM's example of 2 ranks, groups of 3, 5 microbatches, 2 chunks") {
  const Schedule schedule =
      generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 5, .chunks = 2, .group = 3});
  CHECK(to_text(schedule.actions[0]) ==
        "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4");
  std::string chunks;  // Megatron-LM's way: chunk + 1, negative for backward
  for (const Action& action : schedule.actions[0]) {
    const int chunk = action.stage / 2 + 1;
    chunks += std::to_string(action.kind == ActionKind::forward ? chunk : -chunk) + " ";
  }
  CHECK(chunks == "1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1 ");
  for (int p = 1; p <= 6; ++p) {
    for (int m = p; m <= 20; ++m) {
      for (int g = p; g <= m; ++g) {
        for (const char* name : {"interleaved-1f1b", "interleaved-zb"}) {
          CAPTURE(name, p, m, g);
          const ScheduleShape shape{.ranks = p, .microbatches = m, .chunks = 3, .group = g};
          if (m % g == 0 || m % g >= p) {
            CHECK(validate(generate_schedule(name, shape)).empty());
          } else {
            CHECK_THROWS_AS(generate_schedule(name, shape), InputError);
          }
        }
      }
    }
  }
}

TEST_CASE("shapes that a schedule cannot do are refused with what it can") {
  const auto shape = [](int m, int group) {
    return ScheduleShape{.ranks = 4, .microbatches = m, .chunks = 2, .group = group};
  };
  CHECK_THROWS_WITH(generate_schedule("1f1b", {.ranks = 2, .microbatches = 4, .slices = 2}),
                    ContainsSubstring("2 slices") && ContainsSubstring("hint: that belongs to seq-1f1b"));
  CHECK_THROWS_WITH(
      generate_schedule("1f1b", {.ranks = 2, .microbatches = 4, .group = 2}),
      ContainsSubstring("a group of 2") && ContainsSubstring("hint: that belongs to interleaved-1f1b, interleaved-zb"));
  CHECK_THROWS_WITH(
      generate_schedule("1f1b", {.ranks = 2, .microbatches = 4, .update_every = 2}),
      ContainsSubstring("an update every 2") && ContainsSubstring("hint: that belongs to pipedream, pipedream-2bw"));
  CHECK_THROWS_WITH(generate_schedule("1f1b", {.ranks = 4096, .microbatches = 4096}),
                    ContainsSubstring("4096 ranks") && ContainsSubstring("= 16777216, more than 8388608"));
  CHECK_THROWS_WITH(generate_schedule("interleaved-1f1b", shape(16, 3)), ContainsSubstring("take 4"));
  CHECK_THROWS_WITH(generate_schedule("interleaved-1f1b", shape(16, 17)), ContainsSubstring("take 16"));
  CHECK_THROWS_WITH(generate_schedule("interleaved-1f1b", shape(16, 2000000000)), ContainsSubstring("take 16"));
  CHECK_THROWS_WITH(generate_schedule("interleaved-zb", shape(17, 8)), ContainsSubstring("take 6 or 9"));
  CHECK_THROWS_WITH(generate_schedule("interleaved-zb", shape(3, 3)), ContainsSubstring("at least 4 microbatches"));
  CHECK_THROWS_WITH(generate_schedule("hanayo", {.ranks = 4, .microbatches = 4, .chunks = 3}),
                    ContainsSubstring("take 2 or 4 chunks"));
  CHECK_THROWS_WITH(generate_schedule("hanayo", {.ranks = 4, .microbatches = 4}), ContainsSubstring("take 2 chunks"));
  CHECK_THROWS_WITH(generate_schedule("dualpipe-v", {.ranks = 4, .microbatches = 7, .chunks = 2}),
                    ContainsSubstring("at least 8 microbatches"));
  CHECK_THROWS_WITH(generate_schedule("zb-v", {.ranks = 4, .microbatches = 7, .chunks = 3}),
                    ContainsSubstring("3 chunks"));
  // Whole waves and V's are built first: they must not be too large either.
  CHECK_THROWS_AS(generate_schedule("zb-v", {.ranks = 1 << 20, .microbatches = 1, .chunks = 2}), InputError);
  CHECK_THROWS_AS(generate_schedule("hanayo", {.ranks = 1 << 20, .microbatches = 1, .chunks = 2}), InputError);
  CHECK_THROWS_WITH(generate_schedule("pipedream", {.ranks = 4, .microbatches = 8, .update_every = 2}),
                    ContainsSubstring("pipedream-2bw"));
  const auto twice = [](int m, int every) {
    return ScheduleShape{.ranks = 4, .microbatches = m, .update_every = every};
  };
  CHECK_THROWS_WITH(generate_schedule("pipedream-2bw", twice(24, 7)), ContainsSubstring("update every 6 or 8"));
  CHECK_THROWS_WITH(generate_schedule("pipedream-2bw", twice(24, 2)), ContainsSubstring("update every 4"));
  CHECK_THROWS_WITH(generate_schedule("pipedream-2bw", twice(10, 0)), ContainsSubstring("update every 5"));
  CHECK_THROWS_WITH(generate_schedule("pipedream-2bw", twice(24, 100)), ContainsSubstring("update every 24"));
  CHECK_THROWS_WITH(generate_schedule("pipedream-2bw", twice(3, 0)), ContainsSubstring("take 4 microbatches"));
}
