// Dynamic splits of ranks that hold several stages: they fit, and their steps are no longer than the plain splits'.
#include "common/planner/fastest_split.hpp"
#include "common/split/weighed_chain.hpp"

#include <algorithm>
#include <limits>

#include "common/block_cost/block_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/plan_on.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// scenarios/hybrid-4-ranks.yaml with a memory per rank, and with kernels that keep little: the limits below are for
// them.
Scenario hybrid(int mebibytes) {
  return read_text(hybrid_block("sliding/dense*6, linear/dense*2, (sliding/moe, linear/moe, sliding/moe, full/moe)*2") +
                   R"(training: {sequence: 128, global_batch: 16, microbatch: 1, precision: fp32}
layout: {pipeline: 4}
software: {like: plumb, composed: false}
cluster: {machine: local-cpu, ranks: 4, cores: 4, memory: )" +
                   std::to_string(mebibytes) + " MiB}\n");
}

const ScheduleChoice two_chunks{.name = "interleaved-1f1b", .chunks = 2};

Step step_with(const Scenario& scenario, const SplitChoice& split) {
  return step_of(make_plan(scenario, {.microbatch = 1, .schedule = two_chunks, .split = split}));
}

Step step_of(const Scenario& scenario, SplitMethod method) { return step_with(scenario, {.method = method}); }

Step step_of(const Scenario& scenario, const Split& split) { return step_with(scenario, counts_of(split)); }

SplitProblem problem_of(const Scenario& scenario) {
  const Plan plan = make_plan(scenario, {.microbatch = 1, .schedule = two_chunks, .split = {SplitMethod::uniform}});
  return split_problems(plan, block_costs(scenario, 1), held_moments(plan)).sure;
}

}  // namespace

TEST_CASE("a limit between those that the plain splits just meet is kept and used") {
  // The uniform split takes 225.7 MiB. A snapshot of what ranks hold when they hold most microbatches once let a
  // split of 234.5 MiB pass for one that fits 228 MiB.
  const Step narrow = step_of(hybrid(220), SplitMethod::dynamic);
  const Step wide = step_of(hybrid(228), SplitMethod::dynamic);
  CHECK(narrow.peak.value <= std::int64_t{220} << 20);
  CHECK(wide.peak.value <= std::int64_t{228} << 20);
  CHECK(wide.time <= narrow.time);
  CHECK(wide.time.value < 0.82 * step_of(hybrid(228), SplitMethod::uniform).time.value);
}

TEST_CASE("the dynamic split fits at every memory limit that plain splits fit, and is no slower") {
  double last_rank = std::numeric_limits<double>::infinity();
  for (int memory = 212; memory <= 284; memory += 8) {
    const Scenario scenario = hybrid(memory);
    const Bytes limit{std::int64_t{memory} << 20};
    const SplitProblem problem = problem_of(scenario);
    const auto by_stages = dynamic_split(problem);
    CAPTURE(memory);
    REQUIRE(by_stages.has_value());
    const Step chosen = step_of(scenario, SplitMethod::dynamic);
    CHECK(chosen.peak <= limit);
    for (const Split& split : {evened(problem, *by_stages), uniform_split(16, 8)}) {
      const Step plain = step_of(scenario, split);
      if (plain.peak <= limit) CHECK(chosen.time <= plain.time);
    }
    // The step itself is not proven to become shorter with more memory; the slowest rank of all fast splits is: chains
    // so short are searched to the end.
    double fastest_rank = std::numeric_limits<double>::infinity();
    for (const Split& split : fast_splits(problem)) {
      CHECK(step_of(scenario, split).peak <= limit);
      fastest_rank = std::min(fastest_rank, slowest_rank_time(problem, split).value);
    }
    CHECK(fastest_rank <= last_rank);
    last_rank = fastest_rank;
  }
}

TEST_CASE("the ranks' sums count where they hold several stages, not only the slowest stage") {
  // By hand: moving a layer away from what the slowest stage alone suggests.
  const Scenario roomy = hybrid(4096);
  const SplitProblem problem = problem_of(roomy);
  const Split by_stages = evened(problem, *dynamic_split(problem));
  const Step by_hand = step_of(roomy, Split{{3, 3, 2, 2, 2, 2, 2, 0}});
  CHECK(by_hand.time < step_of(roomy, by_stages).time);
  CHECK(step_of(roomy, SplitMethod::dynamic).time <= by_hand.time);
}

TEST_CASE("a heavy head leaves its rank few layers in all, not only few beside it") {
  const Scenario scenario = read_text(R"(model:
  vocabulary: 10000
  hidden: 256
  heads: 4
  ffn: 512
  layers: "full/dense*8"
cluster: {machine: local-cpu, ranks: 2, cores: 2}
training: {sequence: 128, global_batch: 32, microbatch: 1, precision: fp32}
)");
  const Step by_stages = step_of(scenario, Split{{2, 3, 3, 0}});
  const Step by_hand = step_of(scenario, Split{{3, 2, 3, 0}});
  const Step chosen = step_of(scenario, SplitMethod::dynamic);
  CHECK(by_hand.time.value < 0.95 * by_stages.time.value);
  CHECK(chosen.time <= by_hand.time);
}

TEST_CASE("where no split fits, the plan is the one without a limit") {
  const Step chosen = step_of(hybrid(64), SplitMethod::dynamic);
  CHECK(chosen.peak.value > std::int64_t{64} << 20);
  SplitProblem problem = problem_of(hybrid(64));
  CHECK(fast_splits(problem).empty());
  problem.memory_per_rank.reset();
  CHECK(chosen.split == fast_splits(problem).front());
}
