// The search finds what weighing all of a small space finds, whatever it leaves out and however many threads work.
#include "common/search/search.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "common/base/digest.hpp"
#include "common/planner/make_plan.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/random_scenarios.hpp"
#include "tests/common/search/search_counts.hpp"
#include "tests/common/search/weighed_families.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr unsigned scenarios = cases(20);

// As if messages contended: takes up to 5% longer than the path, more or less by plan.
Timeline contended(const Plan& plan) {
  Timeline timeline = predict_by_path(plan);
  const auto spread = static_cast<double>(std::hash<std::string>{}(timeline.plan_digest) % 1000) / 1000;
  timeline.producer = "contended";
  timeline.steps.front().duration = timeline.steps.front().duration * (1 + 0.05 * spread);
  return timeline;
}

// As if messages contended, and as if batches of them took less than the path says: from 2% below it to 5% above.
Timeline around_path(const Plan& plan) {
  Timeline timeline = predict_by_path(plan);
  const auto spread = static_cast<double>(std::hash<std::string>{}(timeline.plan_digest) % 1000) / 1000;
  const double least = plan.software.exchange == PipelineExchange::synchronous ? 0.9801 : 1;
  timeline.producer = "around the path";
  timeline.steps.front().duration = timeline.steps.front().duration * (least + (1.05 - least) * spread);
  return timeline;
}

// A scenario made up from a seed, with what several cases ask of it.
struct MadeUp {
  explicit MadeUp(Scenario of) : scenario(std::move(of)) {}

  // Of all candidates, by the longest path.
  const PlanningResult& by_path() {
    if (!by_path_) by_path_ = plan_scenario(scenario, predict_by_path);
    return *by_path_;
  }
  [[nodiscard]] MakeWeigher bounded(double tightness) const {
    return [tightness, weighed = weighed_](const Scenario& of) { return bounded_weigher(of, weighed, tightness); };
  }

  Scenario scenario;

 private:
  std::shared_ptr<WeighedFamilies> weighed_ = std::make_shared<WeighedFamilies>(scenario);
  std::optional<PlanningResult> by_path_;
};

// Each made once.
template <class Make>
MadeUp& made_once(std::map<unsigned, MadeUp>& all, unsigned seed, const Make& make) {
  const auto known = all.find(seed);
  return known != all.end() ? known->second : all.try_emplace(seed, make()).first->second;
}

MadeUp& roomy_scenario(unsigned seed) {
  static std::map<unsigned, MadeUp> all;
  return made_once(all, seed, [&] { return read_text(random_scenario(seed)); });
}

// A third of the candidates need less memory than there is, so that many do not fit.
MadeUp& tight_scenario(unsigned seed) {
  static std::map<unsigned, MadeUp> all;
  return made_once(all, seed, [&] {
    std::vector<Bytes> peaks;
    for (const Candidate& candidate : roomy_scenario(seed).by_path().candidates) {
      if (candidate.built) peaks.push_back(candidate.peak_bytes);
    }
    REQUIRE_FALSE(peaks.empty());
    std::ranges::nth_element(peaks, peaks.begin() + std::ssize(peaks) / 3);
    return read_text(random_scenario(seed, ", memory: " + std::to_string(peaks[peaks.size() / 3].value) + " B"));
  });
}

MadeUp& synchronous_scenario(unsigned seed) {
  static std::map<unsigned, MadeUp> all;
  return made_once(all, seed, [&] {
    std::string text = random_scenario(seed);
    if (const std::size_t at = text.find("software: plumb"); at != std::string::npos) {
      text.replace(at, 15, "software: megatron-2022");
    }
    Scenario scenario = read_text(text);
    REQUIRE(scenario.software.exchange == PipelineExchange::synchronous);
    return scenario;
  });
}

const Candidate* best_of(const PlanningResult& result) {
  for (const Candidate& candidate : result.candidates) {
    if (candidate.own && candidate.fits) return &candidate;
  }
  return nullptr;
}

void require_same_best(const PlanningResult& found, const PlanningResult& all) {
  const Candidate* best = best_of(found);
  const Candidate* true_best = best_of(all);
  REQUIRE((best == nullptr) == (true_best == nullptr));
  if (best == nullptr) return;
  CHECK(best->iteration == true_best->iteration);
  CHECK(best->peak_bytes == true_best->peak_bytes);
}

}  // namespace

TEST_CASE("the best of a search is the best of all candidates, by path and by an engine with contention") {
  int bounded = 0;
  int pruned = 0;
  int with_answer = 0;
  for (unsigned seed = 0; seed < scenarios; ++seed) {
    CAPTURE(seed);
    MadeUp& made = tight_scenario(seed);
    const SearchSpace space(made.scenario);
    const bool by_path = seed % 2 == 0;
    const Evaluator engine = by_path ? Evaluator(predict_by_path) : Evaluator(contended);
    const PlanningResult all = by_path ? made.by_path() : plan_scenario(made.scenario, engine);
    const SearchResult found = search(space, made.bounded(seed % 3 == 0 ? 1 : 0.9), engine, {.top = 1});
    require_same_best(found.planning, all);
    check_counts(found, space);
    CHECK(found.finished);
    CHECK(found.planning.left == 0);
    bounded += found.planning.bounded > 0 ? 1 : 0;
    pruned += found.planning.pruned > 0 ? 1 : 0;
    with_answer += best_of(all) != nullptr ? 1 : 0;
  }
  CHECK(bounded >= found_in(11));  // or the bounds were not tried
  CHECK(pruned >= found_in(11));
  CHECK(with_answer >= found_in(16));
}

TEST_CASE(
    "the best of a search is the best also by an engine that lies below the path where messages come in batches") {
  int below = 0;
  for (unsigned seed = 0; seed < scenarios; ++seed) {
    CAPTURE(seed);
    const MadeUp& made = synchronous_scenario(seed);
    const SearchSpace space(made.scenario);
    const PlanningResult all = plan_scenario(made.scenario, around_path);
    const SearchResult found = search(space, made.bounded(1), around_path, {.top = 1});
    require_same_best(found.planning, all);
    const Candidate* best = best_of(all);
    below += best != nullptr && best->iteration < predict_by_path(best->plan).steps.front().duration ? 1 : 0;
  }
  CHECK(below >= found_in(6));  // or the engine was as any other
}

// Only the fastest by path takes what the path says, all others 2% less: one of them may be the best.
TEST_CASE("a family just above the best path is not left out where an engine may be 2% below the path") {
  int overtaken = 0;
  for (unsigned seed = 0; seed < scenarios; ++seed) {
    CAPTURE(seed);
    MadeUp& made = synchronous_scenario(seed);
    const SearchSpace space(made.scenario);
    const Candidate* fastest = best_of(made.by_path());
    if (fastest == nullptr) continue;
    const Seconds least = fastest->iteration;
    const Evaluator engine = [=](const Plan& plan) {
      Timeline timeline = predict_by_path(plan);
      Seconds& duration = timeline.steps.front().duration;
      timeline.producer = "others are faster";
      if (duration > least * (1 + 1e-9)) duration = duration * 0.9801;
      return timeline;
    };
    const PlanningResult all = plan_scenario(made.scenario, engine);
    overtaken += best_of(all)->iteration < least ? 1 : 0;
    require_same_best(search(space, made.bounded(1), engine, {.top = 1}).planning, all);
  }
  CHECK(overtaken >= found_in(1));  // or nothing was ever close
}

// Once the best path is known, all others are told to be slower. The engine then finds that it takes longer than some.
TEST_CASE("a dropped candidate is evaluated after all when the engine raises the best time") {
  int overtaken = 0;
  std::int64_t told = 0;
  for (unsigned seed = 0; seed < scenarios; ++seed) {
    CAPTURE(seed);
    MadeUp& made = roomy_scenario(seed);
    const SearchSpace space(made.scenario);
    const Candidate fastest = *best_of(made.by_path());
    const Evaluator engine = [=](const Plan& plan) {
      Timeline timeline = predict_by_path(plan);
      Seconds& duration = timeline.steps.front().duration;
      timeline.producer = "the fastest is slower";
      if (duration <= fastest.iteration * (1 + 1e-9)) duration = duration * 1.3;
      return timeline;
    };
    const PlanningResult all = plan_scenario(made.scenario, engine);
    overtaken += best_of(all)->iteration < fastest.iteration * 1.3 ? 1 : 0;
    const MakeWeigher make = [&](const Scenario& of) {
      Weigher weigher = slow_weigher(of);
      weigher.weigh = [&, weigh = weigher.weigh](const Family& family, const SplitChoice& split,
                                                 std::optional<Seconds> at_most) {
        Estimate estimate = weigh(family, split, at_most);
        if (!at_most || estimate.iteration <= *at_most) return estimate;
        ++told;
        throw SlowerThanAsked(estimate.iteration);
      };
      return weigher;
    };
    const SearchResult found = search(space, make, engine, {.top = 1});
    require_same_best(found.planning, all);
    check_counts(found, space);
  }
  CHECK(told > 0);
  CHECK(overtaken >= found_in(6));  // or nothing was ever close
}

TEST_CASE("without pruning and bounds the table and the answer are the same") {
  for (unsigned seed = 0; seed < cases(10U); ++seed) {
    CAPTURE(seed);
    const MadeUp& made = tight_scenario(seed);
    const SearchSpace space(made.scenario);
    const MakeWeigher make = made.bounded(0.95);
    const Evaluator engine = contended;
    const SearchResult with = search(space, make, engine, {.top = 3});
    const SearchResult without = search(space, make, engine, {.top = 3, .prune = false, .bound = false});
    check_counts(without, space);
    CHECK(without.planning.bounded == 0);
    CHECK(without.planning.evaluated >= with.planning.evaluated);
    require_same_best(with.planning, without.planning);
    const SearchResult unbounded = search(space, make, predict_by_path, {.top = 3, .bound = false});
    const SearchResult by_path = search(space, make, predict_by_path, {.top = 3});
    REQUIRE(unbounded.planning.candidates.size() == by_path.planning.candidates.size());
    for (std::size_t i = 0; i < by_path.planning.candidates.size(); ++i) {
      CHECK(by_path.planning.candidates[i].choice == unbounded.planning.candidates[i].choice);
    }
  }
}

TEST_CASE("one thread and process or several: the same candidates, counts and reasons") {
  for (unsigned seed = 20; seed < 20 + cases(6); ++seed) {
    CAPTURE(seed);
    const MadeUp& made = tight_scenario(seed);
    const SearchSpace space(made.scenario);
    const MakeWeigher make = made.bounded(0.9);
    const SearchResult one = search(space, make, predict_by_path, {.jobs = 1, .pareto = true});
    const SearchResult three = search(space, make, predict_by_path, {.jobs = 3, .processes = 2, .pareto = true});
    REQUIRE(one.planning.candidates.size() == three.planning.candidates.size());
    for (std::size_t i = 0; i < one.planning.candidates.size(); ++i) {
      CHECK(one.planning.candidates[i].plan == three.planning.candidates[i].plan);
      CHECK(one.planning.candidates[i].choice == three.planning.candidates[i].choice);
      CHECK(one.planning.candidates[i].ranks == three.planning.candidates[i].ranks);
      CHECK(one.planning.candidates[i].iteration == three.planning.candidates[i].iteration);
      CHECK(one.planning.candidates[i].engine == three.planning.candidates[i].engine);
    }
    CHECK(one.planning.evaluated == three.planning.evaluated);
    CHECK(one.planning.bounded == three.planning.bounded);
    CHECK(one.explanation == three.explanation);
    CHECK(one.pareto == three.pareto);
  }
}

TEST_CASE("the front of time against memory is that of all candidates that fit") {
  for (unsigned seed = 30; seed < 30 + cases(10); ++seed) {
    CAPTURE(seed);
    const MadeUp& made = tight_scenario(seed);
    const SearchSpace space(made.scenario);
    const MakeWeigher make = made.bounded(0.97);
    const SearchResult found = search(space, make, predict_by_path, {.top = 1, .pareto = true});
    std::vector<std::pair<Seconds, Bytes>> fitting;
    for (std::int64_t id = 0; id < space.candidates(); ++id) {
      const Candidate candidate = weigh_candidate(made.scenario, space.choice(id), predict_by_path);
      if (candidate.fits) fitting.emplace_back(candidate.iteration, candidate.peak_bytes);
    }
    std::vector<std::pair<Seconds, Bytes>> front;
    for (const auto& point : fitting) {
      const bool covered = std::ranges::any_of(fitting, [&](const auto& other) {
        return other != point && other.first <= point.first && other.second <= point.second;
      });
      if (!covered) front.push_back(point);
    }
    std::ranges::sort(front);
    front.erase(std::unique(front.begin(), front.end()), front.end());
    std::vector<std::pair<Seconds, Bytes>> got;
    for (const ParetoPoint& point : found.pareto) got.emplace_back(point.iteration, point.peak_bytes);
    CHECK(got == front);
  }
}

// By brute force: every candidate of the space, weighed by its whole plan.
Bytes least_peak(const Scenario& scenario) {
  const SearchSpace space(scenario);
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t id = 0; id < space.candidates(); ++id) {
    if (space.refusal(id / space.splits())) continue;
    const Candidate candidate = weigh_candidate(scenario, space.choice(id), predict_by_path);
    if (candidate.built) least = std::min(least, candidate.peak_bytes);
  }
  return least;
}

TEST_CASE("where nothing fits, the candidate that is nearest to fitting is named, and the explanation agrees") {
  int compared = 0;
  int excluded = 0;
  for (unsigned seed = 1; seed <= cases(20); ++seed) {
    CAPTURE(seed);
    Scenario tight = read_text(random_scenario(seed));
    tight.cluster.machine.device.memory.value = Bytes{least_peak(tight).value * (seed % 2 == 0 ? 95 : 70) / 100};
    const Bytes least = least_peak(tight);  // splits are searched with the memory at hand
    if (least <= tight.cluster.machine.device.memory.value) continue;
    ++compared;
    const SearchSpace space(tight);
    const SearchResult found = search(space, fast_weigher, predict_by_path, {});
    REQUIRE(found.planning.candidates.size() == 1);
    CHECK(found.planning.candidates.front().peak_bytes == least);
    check_counts(found, space);
    Bytes least_explained{std::numeric_limits<std::int64_t>::max()};
    for (const LeftOut& group : found.explanation) {
      if (group.why == LeftOutWhy::does_not_fit) least_explained = std::min(least_explained, group.least_bytes);
      if (group.why != LeftOutWhy::memory_bound) continue;
      ++excluded;
      CHECK(group.least_bytes >= least);
    }
    CHECK(least_explained == least);
  }
  CHECK(compared >= found_in(15));
  CHECK(excluded > 0);
}

TEST_CASE("where nothing fits, the smallest candidate says why") {
  const Scenario scenario = read_text(random_scenario(1, ", memory: 100 KB"));
  const SearchSpace space(scenario);
  const SearchResult found = search(space, slow_weigher, predict_by_path, {});
  REQUIRE(found.planning.candidates.size() == 1);
  CHECK_THAT(found.planning.candidates.front().reason, ContainsSubstring("too much"));
  CHECK_THROWS_WITH(best_fitting(found.planning, scenario), ContainsSubstring("nothing fits in memory"));
}

TEST_CASE("where nothing can be built, there is a candidate for each kind of reason, with its hint") {
  const Scenario scenario = read_text(
      "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*3\"}\n"
      "training: {sequence: 64, global_batch: 8, microbatch: [1, 2], recompute: full}\n"
      "cluster: {machine: dgx-a100}\nlayout: auto\nsplit: [uniform, dynamic]\n"
      "schedule: [{name: seq-1f1b, slices: 4}, {name: seq-1f1b, slices: 2}]\n");
  const SearchSpace space(scenario);
  const SearchResult found = search(space, slow_weigher, predict_by_path, {});
  for (const Candidate& candidate : found.planning.candidates) CHECK_FALSE(candidate.built);
  CHECK(found.planning.candidates.size() > 1);
  CHECK(found.planning.candidates.size() < 6);  // of hundreds
  try {
    (void)best_fitting(found.planning, scenario);
    FAIL("there is nothing");
  } catch (const InputError& error) {
    CHECK_THAT(error.problem(), ContainsSubstring("slices of sequences") &&
                                    ContainsSubstring("does not divide 4 heads") &&
                                    ContainsSubstring("does not divide the batch"));
    CHECK_THAT(error.hint(), ContainsSubstring("recompute: {layers: …}"));
  }
}

TEST_CASE("every candidate of the space is another one, and all choices of the planner are there") {
  const Scenario scenario = read_text(random_scenario(5));
  const SearchSpace space(scenario);
  std::vector<PlanChoice> choices;
  for (std::int64_t id = 0; id < space.candidates(); ++id) {
    CHECK(std::ranges::find(choices, space.choice(id)) == choices.end());
    choices.push_back(space.choice(id));
    CHECK(space.layout_of(id / space.splits()) == space.choice(id).layout);
  }
  for (const Candidate& candidate : plan_scenario(scenario, predict_by_path).candidates) {
    if (candidate.own) CHECK(std::ranges::find(choices, candidate.choice) != choices.end());
    const bool listed = std::ranges::find(choices, candidate.choice) != choices.end();
    if (!listed) continue;
    const auto id = std::ranges::find(choices, candidate.choice) - choices.begin();
    if (candidate.built) CHECK_FALSE(space.refusal(id / space.splits()).has_value());
  }
}
