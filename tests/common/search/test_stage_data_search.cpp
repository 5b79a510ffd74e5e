// Data degrees by stage that a scenario leaves open: the planner against all cuts and degrees, and others' planners.
#include <algorithm>

#include "common/base/error.hpp"
#include "common/planner/unfolded_memory.hpp"
#include "common/scenario_file/stage_data_choices.hpp"
#include "common/search/baseline.hpp"
#include "common/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Layers that take equally long; those with experts have many more parameters. 10 Gb/s between machines.
std::string text_of(const std::string& layers, int ranks, const std::string& rest) {
  return "model: {vocabulary: 512, hidden: 512, heads: 8, ffn: 1024, experts: {count: 32, top_k: 1, ffn: 1024}, "
         "layers: "
         "\"" +
         layers +
         "\", tied_embeddings: false}\ncluster: {machine: pcie-rtx3090, nodes: 4, ranks: " + std::to_string(ranks) +
         "}\n" + rest;
}

const std::string open = "layout: {data: {by_stage: auto}}\n";

// All of them; without different data degrees the dynamic one, which then has the least slowest rank.
std::vector<SplitChoice> splits_of(const Layout& layout, int layers) {
  std::vector<SplitChoice> splits;
  for_all_splits(layers, layout.pipeline, [&](const Split& split) { splits.push_back(counts_of(split)); });
  return has_stage_data(layout) ? splits : std::vector{SplitChoice{.method = SplitMethod::dynamic}};
}

// The shortest step of all plans that can be built: every pipeline, degrees, microbatch and split.
Seconds shortest(const Scenario& scenario) {
  Seconds best{1e30};
  const int layers = static_cast<int>(scenario.model.layers.size());
  const int replicas = scenario.cluster.ranks;
  for (int pipeline = 1; pipeline <= std::min(layers, replicas); ++pipeline) {
    for_all_splits(replicas, pipeline, [&](const Split& degrees) {
      if (std::ranges::find(degrees.layers, 0) != degrees.layers.end()) return;
      const Layout layout = layout_with(Layout{}, degrees.layers);
      for (const std::int64_t microbatch : scenario.microbatches) {
        for (const SplitChoice& split : splits_of(layout, layers)) {
          const PlanChoice choice{
              .microbatch = microbatch, .schedule = scenario.schedules.front(), .split = split, .layout = layout};
          const Candidate candidate = weigh_candidate(scenario, choice, predict_by_path);
          if (candidate.fits) best = std::min(best, candidate.iteration);
        }
      }
    });
  }
  return best;
}

Candidate best_of(const Scenario& scenario) {
  const SearchSpace space(scenario);
  const SearchResult result = search(space, fast_weigher, predict_by_path, {});
  return best_fitting(result.planning, scenario);
}

}  // namespace

TEST_CASE("degrees by stage that are found are the best of all") {
  int different = 0;
  for (const auto& [layers, ranks, batch] : {std::tuple{"full/dense*3, full/moe*1", 3, 12},
                                             {"full/dense*4", 4, 12},
                                             {"full/dense*2, full/moe*2", 4, 24},
                                             {"full/dense*4, full/moe*1", 5, 24},
                                             {"full/moe*1, full/dense*4", 5, 60},
                                             {"full/dense*5, full/moe*1", 5, 60}}) {
    CAPTURE(layers, ranks);
    const Scenario scenario =
        read_text(text_of(layers, ranks,
                          "training: {sequence: 512, precision: bf16, microbatch: [1, 2], global_batch: " +
                              std::to_string(batch) + "}\nsplit: dynamic\n" + open));
    const Candidate best = best_of(scenario);
    CHECK(best.iteration.value == Approx(shortest(scenario).value).epsilon(1e-9));
    different += has_stage_data(best.plan.layout) ? 1 : 0;
  }
  CHECK(different >= 3);
}

TEST_CASE("heavy activations first and heavy parameters last give 15-1, as PipeDream's VGG-16 on 16 GPUs") {
  // arXiv 1806.03377, Table 1: four machines of four GPUs over 10 Gb/s. Experts stand for the fully connected layers.
  const Scenario scenario = read_text(
      "model: {vocabulary: 512, hidden: 256, heads: 4, ffn: 1024, experts: {count: 512, top_k: 1, ffn: 1024}, "
      "layers: \"full/dense*3, full/moe*1\", tied_embeddings: false}\n"
      "cluster: {machine: pcie-rtx3090, nodes: 4}\n"
      "training: {sequence: 2048, precision: bf16, microbatch: 1, global_batch: 240}\n" +
      open);
  const Candidate best = best_of(scenario);
  CHECK(best.plan.layout.stage_data == std::vector{15, 1});
  CHECK(best.plan.split.layers == std::vector{3, 1});
  int uniform = 0;
  for (const Layout& layout : scenario.layouts) {
    if (has_stage_data(layout)) continue;
    const Candidate other = weigh_candidate(
        scenario, {.microbatch = 1, .schedule = scenario.schedules.front(), .split = {}, .layout = layout},
        predict_by_path);
    uniform += other.built ? 1 : 0;
    if (other.built) CHECK(other.iteration > best.iteration * 1.05);
  }
  CHECK(uniform >= 3);
  for (const char* name : {"pipedream", "dapple", "alpa"}) {
    CAPTURE(name);
    const Candidate other = weigh_baseline(scenario, best, find_baseline(name), predict_by_path);
    REQUIRE(other.built);
    CHECK_FALSE(other.own);
    CHECK(other.choice.schedule.name == "1f1b");
    CHECK(other.iteration.value >= best.iteration.value * (1 - 1e-9));
  }
}

TEST_CASE("a planner's proposals are for the ranks, the pipelines and the microbatches that there are") {
  const auto layouts = [](const std::string& rest) {
    std::vector<std::vector<int>> degrees;
    for (const Layout& layout : read_text(text_of("full/dense*8", 6, rest)).layouts) {
      if (has_stage_data(layout)) degrees.push_back(layout.stage_data);
    }
    return degrees;
  };
  using Degrees = std::vector<std::vector<int>>;
  CHECK(layouts("training: {sequence: 64, microbatch: 1, global_batch: 20}\n"
                "layout: {pipeline: 2, data: {by_stage: auto}}\n") == Degrees{{1, 5}, {2, 4}, {4, 2}, {5, 1}});
  CHECK(layouts("training: {sequence: 64, microbatch: 1, global_batch: 12}\n"
                "layout: {pipeline: 2, data: {by_stage: auto}}\n") == Degrees{{2, 4}, {4, 2}});
  CHECK(layouts("training: {sequence: 64, microbatch: 1, global_batch: 12}\n"
                "layout: {pipeline: 2, data: {degree: auto}}\n")
            .empty());
}

TEST_CASE("bounds of data degrees by stage are below what they take") {
  const Scenario scenario = read_text(text_of(
      "full/dense*4, full/moe*1", 5,
      "training: {sequence: 512, precision: bf16, microbatch: [1, 2], global_batch: 24}\nsplit: dynamic\n" + open));
  const SearchSpace space(scenario);
  const Weigher fast = fast_weigher(scenario);
  int compared = 0;
  for (std::int64_t number = 0; number < space.families(); ++number) {
    if (space.refusal(number)) continue;
    const Family family = space.family(number);
    const Estimate estimate = fast.weigh(family, scenario.splits.front(), {});
    CHECK(fast.time_bound(family) <= estimate.iteration);
    CHECK(fast.memory_bound(family) <= estimate.peak_bytes);
    compared += has_stage_data(family.layout) ? 1 : 0;
  }
  CHECK(compared > 5);
}

// Which candidates are weighed must not hang on how much memory the host has left.
TEST_CASE("an engine that has no room on this host ends planning, and is no reason against a candidate") {
  const Evaluator no_room = [](const Plan&) -> Timeline { throw NoRoomHere("layout", "takes 2 TiB", "--engine path"); };
  const Evaluator refuses = [](const Plan&) -> Timeline { throw InputError("layout", "cannot be predicted"); };
  const Scenario scenario = read_text(text_of("full/dense*4", 4, open + "training: {sequence: 64, global_batch: 8}\n"));
  const SearchSpace space(scenario);
  const auto found_by = [&](const Evaluator& engine, int processes) {
    return search(space, fast_weigher, engine, {.top = 2, .processes = processes});
  };
  for (const int processes : {1, 2}) {
    CHECK_THROWS_WITH(found_by(no_room, processes), ContainsSubstring("takes 2 TiB"));
    CHECK_NOTHROW(found_by(refuses, processes));
  }
  const PlanChoice one = space.choice(0);
  CHECK_THROWS_AS(weigh_candidate(scenario, one, no_room), NoRoomHere);
  CHECK(weigh_candidate(scenario, one, refuses).reason == "cannot be predicted");
}
