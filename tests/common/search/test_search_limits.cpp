// Which families a search weighs and which it leaves out, with times that are made up to lie just beside its limits.
#include <algorithm>
#include <functional>

#include "common/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr int family_count = 60;

// Families that differ by how many layers they redo: the number of each, from 0, is one less than that.
Scenario many_families(const std::string& software, const std::string& layout = "{pipeline: 2}", int ranks = 2) {
  Scenario scenario = read_text(
      "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*4\", tied_embeddings: false}\n"
      "cluster: {machine: dgx-a100, ranks: " +
      std::to_string(ranks) + "}\ntraining: {sequence: 16, microbatch: 1, global_batch: 12}\nlayout: " + layout +
      "\nsoftware: " + software + "\nsplit: uniform\n");
  scenario.recomputes.clear();
  for (int layers = 1; layers <= family_count; ++layers) {
    scenario.recomputes.push_back({.mode = RecomputeMode::first_layers, .layers = layers});
  }
  scenario.training.recompute = scenario.recomputes.front();
  return scenario;
}

// Of every candidate: its stages' layers.
const Split weighed_split{{1, 3}};

// By the longest path each takes a thousandth longer than the one before it, and its bound says so.
double path_of(int number) { return 1 + 0.001 * number; }

Weigher made_up_weigher(const Scenario&) {
  const auto time = [](const Family& family) {
    const int number = family.recompute.layers - 1;
    return Seconds{has_stage_data(family.layout) ? 100 : path_of(number)};
  };
  return {.time_bound = time,
          .memory_bound = [](const Family&) { return Bytes{}; },
          .weigh =
              [=](const Family& family, const SplitChoice&, std::optional<Seconds>) {
                return Estimate{.iteration = time(family), .split = weighed_split, .fits = true};
              }};
}

// Which takes what it is told of each family.
Evaluator engine_of(const std::function<double(int)>& takes) {
  return [=](const Plan& plan) {
    Timeline timeline = predict_by_path(plan);
    timeline.producer = "made up";
    timeline.steps.front().duration = {takes(plan.training.recompute.layers - 1)};
    return timeline;
  };
}

// As the path says, but for one family.
Evaluator engine_with(int exception, double takes) {
  return engine_of([=](int number) { return number == exception ? takes : path_of(number); });
}

SearchResult search_with(const Scenario& scenario, int top, const Evaluator& engine) {
  return search(SearchSpace(scenario), made_up_weigher, engine, {.top = top});
}

int number_of(const Candidate& candidate) { return candidate.choice.recompute->layers - 1; }

}  // namespace

// Families are weighed in rounds of 16, then 32; what lies above the last row of a full table is bounded.
TEST_CASE("a search weighs until its table is full and no family's bound is below the last row") {
  const Scenario scenario = many_families("plumb");
  for (const auto& [top, evaluated] : {std::pair{1, 16}, {3, 16}, {16, 16}, {17, 48}, {48, 48}, {49, 60}}) {
    CAPTURE(top);
    const SearchResult found = search_with(scenario, top, engine_of(path_of));
    CHECK(found.finished);
    CHECK(found.planning.evaluated == evaluated);
    CHECK(found.planning.bounded == family_count - evaluated);
    CHECK(found.planning.simulated == std::max(top, 8));  // several at once
    REQUIRE(found.planning.candidates.size() == static_cast<std::size_t>(top));
    for (int row = 0; row < top; ++row) {
      CHECK(number_of(found.planning.candidates[static_cast<std::size_t>(row)]) == row);
    }
  }
}

// Of the first round all but one take half a second more than their bounds: two rows of three lie behind it.
TEST_CASE("every candidate that may take a row of the table is evaluated, not only the best") {
  const Scenario scenario = many_families("plumb");
  const auto takes = [](int number) { return path_of(number) + (number > 0 && number < 16 ? 0.5 : 0); };
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = made_up_weigher(of);
    weigher.weigh = [=](const Family& family, const SplitChoice&, std::optional<Seconds>) {
      return Estimate{.iteration = {takes(family.recompute.layers - 1)}, .split = weighed_split, .fits = true};
    };
    return weigher;
  };
  const SearchResult found = search(SearchSpace(scenario), make, engine_of(takes), {.top = 3});
  REQUIRE(found.planning.candidates.size() == 3);
  CHECK(number_of(found.planning.candidates[0]) == 0);
  CHECK(number_of(found.planning.candidates[1]) == 16);
  CHECK(number_of(found.planning.candidates[2]) == 17);
}

// A best of 1 s may be beaten by what the path says takes up to 1/(1 − 0.02) s: family 20, not family 21.
TEST_CASE("where messages come in batches families up to 2% above the best prediction are weighed, others none") {
  const Scenario batches = many_families("megatron-2022");
  REQUIRE(batches.software.exchange == PipelineExchange::synchronous);
  const SearchResult found = search_with(batches, 1, engine_with(20, 0.9997));
  CHECK(found.planning.evaluated == 21);
  CHECK(number_of(found.planning.candidates.front()) == 20);
  CHECK(found.planning.candidates.front().iteration.value == 0.9997);
  CHECK(search_with(batches, 1, engine_with(21, 0.5)).planning.evaluated == 21);

  const SearchResult alone = search_with(many_families("plumb"), 1, engine_with(20, 0.9997));
  CHECK(alone.planning.evaluated == 16);
  CHECK(number_of(alone.planning.candidates.front()) == 0);
}

// The same with 5%, up to 1/(1 − 0.05) s: family 52.
TEST_CASE("where stages may have different data degrees families up to 5% above the best prediction are weighed") {
  const Scenario scenario = many_families("plumb", "{pipeline: 2, data: {by_stage: auto}}", 4);
  REQUIRE(std::ranges::any_of(scenario.layouts, has_stage_data));
  REQUIRE_FALSE(std::ranges::all_of(scenario.layouts, has_stage_data));
  const SearchResult found = search_with(scenario, 1, engine_with(52, 0.9999));
  CHECK(found.planning.evaluated == 53);
  CHECK(number_of(found.planning.candidates.front()) == 52);
}

// A candidate that the engine takes for slower than the path says does not end the search for faster ones: all whose
// path is shorter than that are predicted, and none else.
TEST_CASE("candidates are predicted until no path is shorter than the best prediction") {
  const Scenario scenario = many_families("plumb");
  const Evaluator slower = engine_of([](int number) { return path_of(number) + (number == 30 ? 0 : 0.05); });
  const SearchResult found = search_with(scenario, 1, slower);
  CHECK(number_of(found.planning.candidates.front()) == 30);
  CHECK(found.planning.candidates.front().iteration.value == Approx(path_of(30)));
}

TEST_CASE("candidates are predicted with the split that they were weighed with, one plan of two candidates once") {
  Scenario scenario = many_families("plumb");
  scenario.splits = {{.method = SplitMethod::uniform}, {.method = SplitMethod::dynamic}};
  int predicted_plans = 0;
  const Evaluator engine = engine_of(path_of);
  const SearchResult found = search_with(scenario, 8, [&](const Plan& plan) {
    ++predicted_plans;
    CHECK(plan.split == weighed_split);
    return engine(plan);
  });
  CHECK(predicted_plans == 4);
  REQUIRE(found.planning.candidates.size() == 8);
  for (std::size_t row = 0; row < 8; ++row) {
    CAPTURE(row);
    const Candidate& candidate = found.planning.candidates[row];
    CHECK(number_of(candidate) == static_cast<int>(row / 2));
    CHECK(candidate.iteration.value == path_of(static_cast<int>(row / 2)));
    CHECK(candidate.choice.split == scenario.splits[row % 2]);
    CHECK(candidate.plan.split_method == name_of(scenario.splits[row % 2].method));
  }
}
