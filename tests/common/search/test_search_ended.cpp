// Searches that are told to end, or whose splits cannot be proven in time.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/planner/make_plan.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/search/search.hpp"
#include "common/split/coupled.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/common/search/search_counts.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("a search that is told to end keeps the best so far and says that it is not finished") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  std::atomic<bool> stop = false;
  SearchOptions options{.top = 1, .stop = &stop};
  options.progress = [&](const SearchProgress& progress) {
    if (progress.done >= progress.total / 2) stop = true;
  };
  const SearchResult half = search(space, slow_weigher, predict_by_path, options);
  CHECK_FALSE(half.finished);
  CHECK(half.planning.left > 0);
  CHECK(half.planning.candidates.front().fits);
  check_counts(half, space);
}

TEST_CASE("a search of a large space has a plan before it has measured all bounds") {
  const Scenario scenario = read_scenario(PLUMB_SOURCE_DIR "/scenarios/qwen3-next-64-h100.yaml");
  const SearchSpace space(scenario);
  std::atomic<bool> stop = false;
  SearchOptions options{.top = 1, .stop = &stop};
  options.progress = [&](const SearchProgress& progress) {
    if (progress.best) stop = true;
  };
  const SearchResult early = search(space, fast_weigher, predict_by_path, options);
  CHECK_FALSE(early.finished);
  CHECK(early.planning.candidates.front().fits);
  CHECK(early.planning.left > space.candidates() / 2);
  check_counts(early, space);
}

// An engine that finds everything twice as slow cannot leave out what is up to twice as slow by the longest path.
TEST_CASE("the engine's progress is reported, and the rest is counted when a search is stopped") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  const Evaluator doubled = [](const Plan& plan) {
    Timeline timeline = predict_by_path(plan);
    for (StepTimeline& step : timeline.steps) step.duration = step.duration * 2.0;
    return timeline;
  };
  const auto told_of = [&](std::int64_t stop_at) {
    std::atomic<bool> stop = false;
    std::vector<SearchProgress> told;
    SearchOptions options{.top = 1, .stop = &stop};
    options.progress = [&](const SearchProgress& progress) {
      told.push_back(progress);
      if (progress.predicted >= stop_at) stop = true;
    };
    const SearchResult result = search(space, slow_weigher, doubled, options);
    return std::pair(result, told);
  };
  const auto [whole, all_told] = told_of(space.candidates() + 1);
  CHECK(whole.finished);
  CHECK(whole.not_predicted == 0);
  CHECK(all_told.back().predicted > 1);
  const auto [ended, told] = told_of(1);
  CHECK_FALSE(ended.finished);
  CHECK(told.back().to_predict > 0);
  CHECK(ended.not_predicted == told.back().to_predict);
  // Then the best so far is what the engine says of it, not the longest path.
  CHECK(told.back().best == ended.planning.candidates.front().iteration);
}

TEST_CASE("a candidate whose weighing is cut short is left, not refused") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  std::atomic<bool> stop = false;
  const SearchOptions options{.top = 1, .stop = &stop};
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = slow_weigher(of);
    const auto watched = std::make_shared<Stop>();
    const auto calls = std::make_shared<int>(0);
    weigher.watch = [=](const Stop& by) { *watched = by; };
    weigher.weigh = [=, &of, &stop](const Family& family, const SplitChoice& split, std::optional<Seconds> at_most) {
      if (++*calls == 5) stop = true;  // as if within a long search for a split
      watched->check();
      return weigh_slowly(of, family, split, {.at_most = at_most});
    };
    return weigher;
  };
  const SearchResult cut = search(space, make, predict_by_path, options);
  CHECK_FALSE(cut.finished);
  CHECK(cut.planning.evaluated <= 4);
  CHECK(cut.planning.left >= space.candidates() - 4 - cut.planning.pruned);
  check_counts(cut, space);
  for (const LeftOut& group : cut.explanation) CHECK(group.reason.find("told to end") == std::string::npos);
}

// A hundred thousand machines have so many layouts that their bounds alone took longer than the limit.
TEST_CASE(
    "a time limit that does not suffice for all bounds leaves half of it to weigh the best of those that it has") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  const std::chrono::duration<double> limit{1};
  std::atomic<std::int64_t> measured = 0;
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = slow_weigher(of);
    weigher.time_bound = [&](const Family&) {
      std::this_thread::sleep_for(4 * limit / space.families());
      ++measured;
      return Seconds{};
    };
    return weigher;
  };
  const SearchResult found = search(space, make, predict_by_path, {.top = 1, .time_limit = limit});
  CHECK_FALSE(found.finished);
  CHECK(measured < space.families());
  CHECK(found.planning.candidates.front().fits);
  CHECK(found.planning.left > 0);
  check_counts(found, space);
}

TEST_CASE("bounds that take half of a time limit and more are measured to the end where what they leave suffices") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  const SearchResult whole = search(space, fast_weigher, predict_by_path, {.top = 3});
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = fast_weigher(of);
    weigher.time_bound = [&, bound = weigher.time_bound](const Family& family) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2.2) / space.families());
      return bound(family);
    };
    return weigher;
  };
  const SearchResult found =
      search(space, make, predict_by_path, {.top = 3, .time_limit = std::chrono::duration<double>(4)});
  CHECK(found.finished);
  CHECK(found.planning.left == 0);
  CHECK(found.planning.candidates.front().choice == whole.planning.candidates.front().choice);
  check_counts(found, space);
}

TEST_CASE("told to end, the best one's uniform split is weighed all the same, unless a schedule is made for it") {
  const auto ended_at_once = [](const std::string& schedule) {
    const Scenario scenario = read_text(
        scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2}\n"
                      "training: {sequence: 32, global_batch: 8, microbatch: [1, 2]}\nsplit: dynamic\nschedule: " +
                      schedule + "\n"));
    std::atomic<bool> ended = false;
    const Stop stop(&ended, std::nullopt);
    return plan_scenario(
        scenario, predict_by_path, [&](int, int, Seconds) { ended = true; }, &stop);
  };
  const PlanningResult found = ended_at_once("1f1b");
  REQUIRE(found.candidates.size() == 2);
  CHECK(found.candidates[0].choice.split.method == SplitMethod::dynamic);
  PlanChoice uniform = found.candidates[0].choice;
  uniform.split = {.method = SplitMethod::uniform};
  CHECK(found.candidates[1].choice == uniform);
  CHECK_FALSE(found.candidates[1].own);
  CHECK(found.evaluated == 2);
  CHECK(found.left == 2);
  const PlanningResult made = ended_at_once("zb-auto");
  CHECK(made.candidates.size() == 1);
  CHECK(made.left > 0);
}

TEST_CASE("splits that took too long to prove are counted apart from what cannot be built") {
  const Scenario scenario = read_text(random_scenario(3));
  const SearchSpace space(scenario);
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = slow_weigher(of);
    weigher.weigh = [=, &of](const Family& family, const SplitChoice& split, std::optional<Seconds> at_most) {
      if (++*calls <= 3) throw TooLongToProve("split", "it takes too long to prove", "");
      return weigh_slowly(of, family, split, {.at_most = at_most});
    };
    return weigher;
  };
  const SearchResult found = search(space, make, predict_by_path, {});
  CHECK(found.planning.unproven == 3);
  check_counts(found, space);
  std::int64_t unproven = 0;
  for (const LeftOut& group : found.explanation) {
    const bool own = group.reason == "it takes too long to prove";
    CHECK(own == (group.why == LeftOutWhy::unproven));
    unproven += own ? group.candidates : 0;
  }
  CHECK(unproven == 3);
}

TEST_CASE("told to end, a search of schedules made for times predicts the plan that it weighed, and makes no other") {
  const Scenario scenario = read_text(hybrid_block("full/dense*8") +
                                      "cluster: {machine: dgx-a100, ranks: 4}\n"
                                      "training: {sequence: 128, global_batch: 16, microbatch: [1, 2]}\n"
                                      "layout: {pipeline: [2, 4], data: auto}\nschedule: zb-auto\nsplit: dynamic\n");
  const SearchSpace space(scenario);
  std::atomic<bool> stop = false;
  const MakeWeigher make = [&](const Scenario& of) {
    Weigher weigher = fast_weigher(of);
    weigher.weigh = [weigh = weigher.weigh, &stop](const Family& family, const SplitChoice& split,
                                                   std::optional<Seconds> at_most) {
      Estimate estimate = weigh(family, split, at_most);
      stop = true;
      return estimate;
    };
    return weigher;
  };
  const SearchResult found = search(space, make, predict_by_path, {.stop = &stop});
  CHECK_FALSE(found.finished);
  CHECK(found.planning.evaluated == 1);
  REQUIRE(found.planning.candidates.size() == 1);
  const Candidate& only = found.planning.candidates.front();
  CHECK(only.own);
  CHECK(only.fits);
  CHECK(to_json(only.plan) == to_json(make_plan(scenario, only.choice, {.thorough = false})));
  CHECK(only.iteration == predict_by_path(only.plan).steps.front().duration);
  check_counts(found, space);
}
