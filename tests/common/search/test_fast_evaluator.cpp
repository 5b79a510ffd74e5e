// What the fast way says is what the whole plan says: split, time and memory, over random families.
#include "common/planner/make_plan.hpp"
#include "common/search/fast_evaluator.hpp"

#include "tests/catch.hpp"
#include "tests/common/plan/steps.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/common/search/random_families.hpp"
#include "tests/common/split/all_splits.hpp"
#include "tests/effort.hpp"

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
  REQUIRE(fast.time_bound(family).value <= expected->iteration.value);
  REQUIRE(fast.memory_bound(family).value <= expected->peak_bytes.value);
  if (found->exact) {
    REQUIRE(found->peak_bytes.value == expected->peak_bytes.value);
    REQUIRE(found->fullest_rank == expected->fullest_rank);
  }
  return true;
}

}  // namespace

TEST_CASE("a candidate ruled out before its cost-driven schedule is made is not faster") {
  int told = 0;
  int built = 0;
  for (std::uint64_t seed = 0; seed < cases(15U); ++seed) {
    RandomFamilies random(seed);
    Scenario scenario = random.scenario();
    FastEvaluator fast(scenario);
    CAPTURE(seed);
    for (int n = 0; n < 4; ++n) {
      Family family = random.family({"zb-auto"});
      family.layout.pipeline = random.number(1, 4);
      const SplitChoice split{.method = random.coin() ? SplitMethod::uniform : SplitMethod::dynamic};
      const auto whole = if_built([&] { return weigh_slowly(scenario, family, split); });
      if (!whole) continue;
      ++built;
      CAPTURE(describe(family.layout), family.schedule.chunks, family.microbatch);
      for (const double part : {0.5, 0.9, 0.99, 1.0, 1.0 + 1e-9, 1.1}) {
        if (part > 1 && n > 0) continue;  // as what it takes itself
        const Seconds at_most = whole->iteration * part;
        std::optional<Seconds> found;
        std::optional<Seconds> least;
        try {
          found = fast.weigh(family, split, at_most).iteration;
        } catch (const SlowerThanAsked& slower) {
          least = slower.least;
        }
        if (found) REQUIRE(*found == whole->iteration);
        if (!least) continue;
        ++told;
        REQUIRE(*least > at_most);
        if (whole->fits) REQUIRE(*least <= whole->iteration * (1 + 1e-12));
      }
    }
  }
  CHECK(told > 2 * built / 3);
  CHECK(built >= found_in(26));
}

TEST_CASE("a family is ruled out only where every split that fits takes longer, by all splits") {
  int ruled_out = 0;
  int built = 0;
  for (std::uint64_t seed = 0; seed < cases(40U); ++seed) {
    RandomFamilies random(seed + 900);
    const Scenario scenario = random.scenario();
    FastEvaluator fast(scenario);
    CAPTURE(seed);
    for (int n = 0; n < 6; ++n) {
      Family family = random.family(all_schedules());
      family.layout.pipeline = random.number(1, 4);
      family.schedule.slice_tokens.clear();
      family.schedule.slices_by = SlicesBy::tokens;
      const auto layers = static_cast<int>(scenario.model.layers.size());
      const int count = stages_of(family.schedule, family.layout.pipeline);
      if (count > layers || layers > 14) continue;
      Seconds least = longest_time;
      for_all_splits(layers, count, [&](const Split& all) {
        const SplitChoice split{.method = SplitMethod::counts, .counts = all.layers};
        const auto found = if_built([&] { return fast.weigh(family, split); });
        if (found && found->fits) least = std::min(least, found->iteration);
      });
      if (least == longest_time) continue;
      ++built;
      CAPTURE(family.schedule.name, family.schedule.chunks, describe(family.layout), family.microbatch);
      for (const double part : {0.7, 0.9, 0.97, 1.0 + 1e-9}) {
        try {
          static_cast<void>(fast.weigh(family, {.method = SplitMethod::dynamic}, least * part));
        } catch (const SlowerThanAsked& slower) {
          ++ruled_out;
          REQUIRE(part < 1);
          REQUIRE(slower.least > least * part);
        } catch (const InputError&) {  // a dynamic split may be refused where a written one is not
        }
      }
    }
  }
  CHECK(built >= found_in(60));
  CHECK(ruled_out >= found_in(20));  // the proof is asked where a rank has several stages
}

TEST_CASE("over random families of every schedule the fast way says what the whole plan says") {
  int built = 0;
  for (std::uint64_t seed = 0; seed < cases(60U); ++seed) {
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
  CHECK(built >= found_in(501));
}

TEST_CASE("over random families of grids the fast way says what the whole plan says") {
  int built = 0;
  for (std::uint64_t seed = 0; seed < cases(30U); ++seed) {
    RandomFamilies random(seed + 500);
    const Scenario scenario = random.dense_scenario();
    FastEvaluator fast(scenario);
    CAPTURE(seed);
    for (int n = 0; n < 20; ++n) {
      const Family family = random.grid_family(all_schedules());
      for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::dynamic}) {
        if (method == SplitMethod::dynamic && family.schedule.chunks > 1) continue;  // which takes the slow way seconds
        built += compare(fast, scenario, family, method) ? 1 : 0;
      }
    }
  }
  CHECK(built >= found_in(100));
}

TEST_CASE("over random families that divide the vocabulary the fast way says what the whole plan says") {
  int built = 0;
  for (std::uint64_t seed = 0; seed < cases(30U); ++seed) {
    RandomFamilies random(seed + 2000);
    const Scenario scenario = random.scenario_of_many_tokens();
    FastEvaluator fast(scenario);
    CAPTURE(seed);
    for (int n = 0; n < 12; ++n) {
      Family family = random.vocabulary_family();
      for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::parameters, SplitMethod::dynamic}) {
        built += compare(fast, scenario, family, method) ? 1 : 0;
      }
      family.layout.vocabulary_barriers = 0;  // whole again, by the same evaluator
      if (n % 4 == 0) built += compare(fast, scenario, family, SplitMethod::uniform) ? 1 : 0;
    }
  }
  CHECK(built >= found_in(300));
}

namespace {

// Parts of what a candidate takes that its family's bounds come to, at the most.
struct Nearest {
  double time = 0;
  double memory = 0;

  void require_bounds(FastEvaluator& fast, const Family& family, int layers, int stage_count) {
    for_all_splits(layers, stage_count, [&](const Split& split) {
      const auto found = if_built([&] { return fast.weigh(family, counts_of(split)); });
      if (!found) return;
      const Seconds time_bound = fast.time_bound(family);
      const Bytes memory_bound = fast.memory_bound(family);
      REQUIRE(time_bound <= found->iteration);
      REQUIRE(memory_bound <= found->peak_bytes);
      time = std::max(time, time_bound / found->iteration);
      memory = std::max(memory, memory_bound / found->peak_bytes);
    });
  }
};

}  // namespace

TEST_CASE("no split beside a divided vocabulary is faster or smaller than its bounds, and some come near") {
  Nearest nearest;
  for (std::uint64_t seed = 0; seed < cases(40U); ++seed) {
    RandomFamilies random(seed + 3000);
    const Scenario scenario = random.scenario_of_many_tokens();
    const int layers = static_cast<int>(scenario.model.layers.size());
    FastEvaluator fast(scenario);
    for (int n = 0; n < 10; ++n) {
      Family family = random.vocabulary_family();
      family.layout.pipeline = random.number(2, 4);
      if (family.layout.pipeline > layers) continue;
      CAPTURE(seed, n, family.schedule.name, describe(family.layout));
      nearest.require_bounds(fast, family, layers, family.layout.pipeline);
    }
  }
  CHECK(nearest.time > 0.95);
  CHECK(nearest.memory > 0.7);
}

TEST_CASE("no split of a family is faster or smaller than its bounds, and some come near") {
  Nearest nearest;
  for (std::uint64_t seed = 0; seed < cases(40U); ++seed) {
    RandomFamilies random(seed + 1000);
    const Scenario scenario = random.scenario();
    const int layers = static_cast<int>(scenario.model.layers.size());
    FastEvaluator fast(scenario);
    for (int n = 0; n < 10; ++n) {
      Family family = random.family({"gpipe", "1f1b", "zb-h1", "eager-1f1b", "interleaved-1f1b"});
      family.layout.pipeline = random.number(1, 3);
      family.schedule.chunks = fewest_chunks(family.schedule.name);
      const int stage_count = family.layout.pipeline * family.schedule.chunks;
      if (stage_count > layers || stage_count > 4) continue;
      CAPTURE(seed, n, family.schedule.name, stage_count);
      nearest.require_bounds(fast, family, layers, stage_count);
    }
  }
  CHECK(nearest.time > 0.95);
  CHECK(nearest.memory > 0.7);
}

// Its graph has fewer microbatches than the step, on whose number the cuts of published planners depend.
TEST_CASE("the thorough dynamic split of a family is that of a plan of its own") {
  const Scenario scenario = read_text(
      "model: models/qwen3-next-80b-a3b.yaml\ncluster: {machine: dgx-h100, nodes: 4}\n"
      "training: {sequence: 4096, global_batch: 256, microbatch: 1, precision: bf16, recompute: full}\n"
      "layout: {pipeline: 32}\nschedule: 1f1b\n");
  FastEvaluator fast(scenario);
  for (const int barriers : {0, 1, 2}) {
    Family family{.layout = scenario.layout, .recompute = scenario.training.recompute};
    family.layout.vocabulary_barriers = barriers;
    CAPTURE(barriers);
    CHECK(describe(fast.refined(family)) == describe(refined_slowly(scenario, family)));
  }
}

// Of equal slices the last one hands nothing on: each has bytes of its own, from parts as in the whole plan.
TEST_CASE("equal slices whose layers are redone need the same from parts as in the whole plan") {
  Scenario scenario = read_text(hybrid_block("full/dense*3, linear/moe*3, sliding/dense*2") +
                                "training: {sequence: 128, global_batch: 16, microbatch: 1, precision: bf16}\n"
                                "layout: {pipeline: 4}\ncluster: {machine: dgx-a100, ranks: 4}\n");
  scenario.software.recompute_unit = RecomputeUnit::layer;
  FastEvaluator fast(scenario);
  const std::vector<Recompute> ways{{.mode = RecomputeMode::none},
                                    {.mode = RecomputeMode::full},
                                    {.mode = RecomputeMode::every_nth_layer, .layers = 2},
                                    {.mode = RecomputeMode::first_layers, .layers = 1}};
  for (const Recompute& recompute : ways) {
    for (const int slices : {2, 4}) {
      Family family;
      family.layout.pipeline = 4;
      family.recompute = recompute;
      family.schedule = {.name = "seq-1f1b", .slices = slices};
      for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::dynamic}) {
        CHECK(compare(fast, scenario, family, method));
      }
      const Plan plan =
          make_plan(settled(scenario, family),
                    {.microbatch = 1, .schedule = family.schedule, .split = {.method = SplitMethod::uniform}});
      for (const ComputeCost& stage : plan.costs.stages) {
        CHECK(bytes_of(stage, 0).gradients_taken > Bytes{});
        if (recompute.mode == RecomputeMode::full) CHECK(bytes_of(stage, 0).kept > bytes_of(stage, slices - 1).kept);
      }
    }
  }
}

// The oracle is the whole plan's peak: what needs exactly the memory that there is fits, one byte less does not do.
TEST_CASE("a candidate that needs the last byte of the memory fits, and none that needs one more") {
  for (const int microbatches : {8, 512}) {
    for (const std::string name : {"1f1b", "gpipe", "zb-h1"}) {
      CAPTURE(name, microbatches);
      Scenario scenario = read_text(hybrid_block("full/dense*6, full/moe*2") +
                                    "training: {sequence: 128, global_batch: 8, microbatch: 1, precision: bf16}\n"
                                    "layout: {pipeline: 4}\ncluster: {machine: dgx-a100, ranks: 4}\n");
      scenario.training.global_batch = microbatches;
      Family family;
      family.layout.pipeline = 4;
      family.schedule.name = name;
      Bytes& memory = scenario.cluster.machine.device.memory.value;
      memory = {std::int64_t{1} << 40};
      for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::dynamic}) {
        const Bytes needed = weigh_slowly(scenario, family, {.method = method}).peak_bytes;
        for (const Bytes there : {needed, needed - Bytes{1}}) {
          memory = there;
          const Estimate whole = weigh_slowly(scenario, family, {.method = method});
          const Estimate fast = FastEvaluator(scenario).weigh(family, {.method = method});
          CHECK(fast.split == whole.split);
          CHECK(fast.fits == (whole.peak_bytes <= there));
          if (method == SplitMethod::uniform) CHECK(fast.fits == (there == needed));
        }
        memory = {std::int64_t{1} << 40};
      }
    }
  }
}
