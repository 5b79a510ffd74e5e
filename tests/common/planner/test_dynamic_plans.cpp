// Dynamic splits of whole plans against brute force: by the longest path and the memory that plans are held to.
#include <algorithm>
#include <limits>
#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/cut_problem.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/plan_on.hpp"
#include "common/planner/planner.hpp"
#include "common/split/weighed_chain.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/steps.hpp"
#include "tests/common/search/random_families.hpp"
#include "tests/common/split/all_splits.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Scenario scenario_of(const Scenario& scenario, const Family& family) {
  Scenario of_family = settled(scenario, family);
  of_family.cluster.ranks = ranks(family.layout);
  return of_family;
}

Plan plan_with(const Scenario& scenario, const Family& family, const SplitChoice& split, bool thorough = true) {
  return make_plan(scenario_of(scenario, family),
                   {.microbatch = family.microbatch, .schedule = family.schedule, .split = split},
                   {.thorough = thorough});
}

SplitProblem sure_problem(const Plan& plan, const std::vector<ComputeCost>& blocks) {
  return split_problems(plan, blocks, held_moments(plan)).sure;
}

// Every way to cut the family's plan, by the longest path.
std::vector<Step> all_steps(const Scenario& scenario, const Family& family, int stage_count) {
  std::vector<Step> steps;
  for_all_splits(static_cast<int>(scenario.model.layers.size()), stage_count, [&](const Split& split) {
    const auto plan = if_built([&] { return plan_with(scenario, family, counts_of(split)); });
    if (plan) steps.push_back(step_of(*plan));
  });
  return steps;
}

// A family of few layers and ranks, so that all its splits can be weighed.
struct Small {
  Scenario scenario;
  Family family;
};
Small small_family(RandomFamilies& random, const std::vector<std::string>& schedules) {
  Small small{.scenario = random.scenario(), .family = random.family(schedules)};
  auto& layers = small.scenario.model.layers;
  layers.resize(std::min<std::size_t>(layers.size(), 9));
  small.scenario.training.global_batch = 16;
  small.family.layout.pipeline = random.number(2, 4);
  small.family.microbatch = 1;
  small.scenario.model.tied_embeddings = false;  // schedules with several updates refuse a table on two ranks
  small.family.schedule.chunks = 1;
  return small;
}

const std::vector<std::string> with_one_stage = {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "pipedream"};

}  // namespace

TEST_CASE("the dynamic split is the fastest that fits by brute force, and fits if any split does") {
  int limited = 0;
  int impossible = 0;
  for (std::uint64_t seed = 0; seed < cases(120U); ++seed) {
    RandomFamilies random(seed + 7000);
    Small small = small_family(random, with_one_stage);
    Scenario& scenario = small.scenario;
    const int stage_count = small.family.layout.pipeline;
    if (stage_count > std::ssize(scenario.model.layers)) continue;
    scenario.cluster.machine.device.memory.value = Bytes{std::int64_t{1} << 40};
    std::vector<Step> steps = all_steps(scenario, small.family, stage_count);
    if (steps.size() < 3) continue;
    std::ranges::sort(steps, {}, &Step::peak);
    // Just what some split needs, and one byte less; also less than any does.
    for (const std::size_t nth : {std::size_t{0}, steps.size() / 4, steps.size() / 2}) {
      for (const std::int64_t less : {0, 1}) {
        const Bytes limit = steps[nth].peak - Bytes{less};
        scenario.cluster.machine.device.memory.value = limit;
        double best = std::numeric_limits<double>::infinity();
        for (const Step& step : steps) best = step.peak <= limit ? std::min(best, step.time.value) : best;
        CAPTURE(seed, nth, less, small.family.schedule.name, describe(small.family.layout),
                static_cast<int>(small.family.recompute.mode));
        const Step chosen = step_of(plan_with(scenario, small.family, {SplitMethod::dynamic}));
        const bool possible = best < std::numeric_limits<double>::infinity();
        REQUIRE((chosen.peak <= limit) == possible);
        ++(possible ? limited : impossible);
        if (possible) REQUIRE(chosen.time.value <= best * (1 + 1e-9));
      }
    }
  }
  CHECK(limited >= found_in(201));
  CHECK(impossible >= found_in(31));
}

TEST_CASE("no dynamic plan is slower than the uniform split or a published planner's cuts that fit") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < cases(60U); ++seed) {
    RandomFamilies random(seed + 8000);
    const Scenario scenario = random.scenario();
    Family family = random.family({"gpipe", "1f1b", "eager-1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "dualpipe"});
    const auto dynamic = if_built([&] { return plan_with(scenario, family, {SplitMethod::dynamic}); });
    const auto uniform = if_built([&] { return plan_with(scenario, family, {SplitMethod::uniform}); });
    if (!dynamic || !uniform) continue;
    std::vector<Split> others = cuts_of_planners(cut_problem(scenario_of(scenario, family), *uniform));
    others.push_back(uniform->split);
    const Bytes limit = scenario.cluster.machine.device.memory.value;
    const Step chosen = step_of(*dynamic);
    CAPTURE(seed, family.schedule.name, family.schedule.chunks, describe(family.layout));
    for (const Split& split : others) {
      const Step other = step_of(plan_with(scenario, family, counts_of(split)));
      if (other.peak > limit) continue;
      ++compared;
      CAPTURE(describe(split), describe(dynamic->split));
      REQUIRE(chosen.peak <= limit);
      REQUIRE(chosen.time.value <= other.time.value * (1 + 1e-9));
    }
    // A search weighs with less effort: never better, nor without an answer where there is one.
    const Step quick = step_of(plan_with(scenario, family, {SplitMethod::dynamic}, false));
    CHECK(chosen.time.value <= quick.time.value * (1 + 1e-9));
    CHECK((quick.peak <= limit) == (chosen.peak <= limit));
  }
  CHECK(compared >= found_in(101));
}

// The head's logits need a workspace of several layers, on the last rank alone.
TEST_CASE("the workspace of the head keeps no room free on the other ranks") {
  const auto planned = [](const std::string& split, int gibibytes) {
    return make_plan(read_text(R"(
model: {vocabulary: 128256, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, layers: "full/dense*32", activation: swiglu}
cluster: {machine: dgx-h100, ranks: 8, memory: )" +
                               std::to_string(gibibytes) + R"( GiB}
training: {sequence: 8192, global_batch: 64, microbatch: 1, precision: bf16}
layout: {pipeline: 8}
schedule: 1f1b
split: )" + split + "\n"),
                     {.schedule = {.name = "1f1b"},
                      .split = {split == "uniform" ? SplitMethod::uniform : SplitMethod::dynamic}});
  };
  const Step roomy = step_of(planned("dynamic", 80));
  for (int gibibytes = 52; gibibytes <= 62; ++gibibytes) {
    CAPTURE(gibibytes);
    const Bytes limit{std::int64_t{gibibytes} << 30};
    const Step dynamic = step_of(planned("dynamic", gibibytes));
    CHECK(dynamic.peak <= limit);
    const Step uniform = step_of(planned("uniform", gibibytes));
    if (uniform.peak <= limit) CHECK(dynamic.time <= uniform.time);
    if (roomy.peak <= limit) CHECK(dynamic.time.value <= roomy.time.value * (1 + 1e-9));
  }
}

TEST_CASE("the split's memory limit counts the workspaces of the stage's own blocks") {
  const Scenario scenario = read_text(hybrid_block("full/dense*4, full/moe*4") +
                                      "cluster: {machine: local-cpu, ranks: 2, cores: 2}\n"
                                      "training: {sequence: 32, global_batch: 8, microbatch: 1}\n");
  const std::vector<ComputeCost> blocks = block_costs(scenario, 1);
  for (int first = 0; first <= 8; ++first) {
    const Plan plan = make_plan(scenario, {.microbatch = 1, .split = counts_of({{first, 8 - first}})});
    const SplitProblem problem = sure_problem(plan, blocks);
    const std::vector<Bytes> memory = rank_memory(problem, plan.split);
    const std::vector<RankMemory> peaks = memory_by_path(plan);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      CAPTURE(first, rank);
      CHECK(peaks[rank].peak_bytes <= memory[rank]);
      CHECK(peaks[rank].peak_bytes >= memory[rank] - 2 * plan.costs.boundary_bytes);
    }
  }
}

// With sequence parallelism a layer keeps more from I to W, whole output gradients, than before I.
TEST_CASE("the split's memory limit holds what waits for W, where that is more than what F keeps") {
  for (const char* const schedule : {"zb-h1", "zb-h2"}) {
    const Scenario scenario = read_text(hybrid_block("full/dense*8") +
                                        "cluster: {machine: local-cpu, ranks: 16, cores: 16}\n"
                                        "training: {sequence: 64, global_batch: 16, microbatch: 1}\n"
                                        "layout: {pipeline: 4, tensor: {degree: 4, sequence_parallel: true}}\n"
                                        "schedule: " +
                                        schedule + "\n");
    const std::vector<ComputeCost> blocks = block_costs(scenario, 1);
    CHECK(blocks[1].kept_for_weight_bytes > blocks[1].kept_bytes);
    for_all_splits(8, 4, [&](const Split& split) {
      const Plan plan =
          make_plan(scenario, {.microbatch = 1, .schedule = scenario.schedules.front(), .split = counts_of(split)});
      const SplitProblem problem = sure_problem(plan, blocks);
      const std::vector<Bytes> memory = rank_memory(problem, plan.split);
      const std::vector<RankMemory> peaks = memory_by_path(plan);
      for (std::size_t rank = 0; rank < memory.size(); ++rank) {
        INFO(schedule << ", " << describe(split) << ", rank " << rank);
        CHECK(peaks[rank].peak_bytes <= memory[rank]);
      }
    });
  }
}

TEST_CASE("the split's memory limit leaves room for messages and the inputs of redone stages, by rank") {
  const std::string training = "training: {sequence: 32, global_batch: 8, microbatch: 1, recompute: ";
  const auto reserved = [&](const std::string& recompute, int ranks) {
    const std::string machine = "cluster: {machine: local-cpu, ranks: " + std::to_string(ranks) + ", cores: 4}\n";
    const Scenario scenario = read_text(scenario_text(machine + training + recompute + "}\n"));
    const SplitProblem problem = sure_problem(make_plan(scenario, {.microbatch = 1}), block_costs(scenario, 1));
    CHECK(*problem.memory_per_rank == scenario.cluster.machine.device.memory.value);
    return problem.rank_reserve;
  };
  const Bytes boundary{32 * 64 * 4};
  // To and from each neighbour one message on its way; the middle rank has two.
  CHECK(reserved("none", 1) == std::vector{Bytes{0}});
  CHECK(reserved("none", 3) == std::vector{2 * boundary, 4 * boundary, 2 * boundary});
  // In 1F1B the ranks hold three, two and one input; the first stage's are the tokens.
  CHECK(reserved("full", 3) == std::vector{2 * boundary, (4 + 2) * boundary, (2 + 1) * boundary});
}
