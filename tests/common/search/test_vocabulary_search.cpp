// A vocabulary over the pipeline that is left open: the search against every candidate, predicted one by one; and what
// cannot have it, by its reason.
#include <algorithm>
#include <array>

#include "tests/catch.hpp"
#include "tests/common/search/best_of_all.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

struct Weighed : BestOfAll {
  std::array<int, 3> built = {};  // by barriers
  int beside_tensor = 0;          // of those with barriers, by tensor ranks
};

// The layouts without barriers with none, one or two each: without the search's own list of them.
Weighed weigh_all(const Scenario& scenario) {
  Weighed all;
  for (const Layout& whole : scenario.layouts) {
    if (whole.vocabulary_barriers > 0) continue;
    for (int barriers = 0; barriers <= (whole.pipeline > 1 ? 2 : 0); ++barriers) {
      Scenario one = scenario;
      one.layouts = {whole};
      one.layouts.front().vocabulary_barriers = barriers;
      one.layout = one.layouts.front();
      for (const Candidate& candidate : plan_scenario(one, predict_by_path).candidates) {
        if (!candidate.built || !candidate.own) continue;
        all.take(candidate);
        ++all.built.at(static_cast<std::size_t>(barriers));
        all.beside_tensor += barriers > 0 && whole.tensor.degree > 1 ? 1 : 0;
      }
    }
  }
  return all;
}

SearchResult searched(const std::string& text) {
  const Scenario scenario = read_text(text);
  return search(SearchSpace(scenario), fast_weigher, predict_by_path, {.top = 3});
}

bool says(const SearchResult& found, const std::string& reason) {
  return std::ranges::any_of(found.explanation, [&](const LeftOut& group) {
    return group.why == LeftOutWhy::cannot_be_built && group.reason.find(reason) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("with the vocabulary left open the best of a search is the best of every candidate, predicted one by one") {
  std::array<int, 3> met = {};
  std::array<int, 3> won = {};
  int excluded = 0;
  int beside_tensor = 0;
  for (unsigned seed = 0; seed < cases(24U); ++seed) {
    CAPTURE(seed);
    const Weighed roomy = weigh_all(read_text(random_vocabularies(seed)));
    REQUIRE(roomy.peaks.size() > 3);
    beside_tensor += roomy.beside_tensor;
    for (std::size_t barriers = 0; barriers < met.size(); ++barriers) met.at(barriers) += roomy.built.at(barriers);
    const Scenario scenario = read_text(random_vocabularies(seed, ", " + memory_line(scarce_memory(roomy, seed))));
    const Candidate best = require_best(scenario, weigh_all(scenario), excluded);
    ++won.at(static_cast<std::size_t>(best.plan.layout.vocabulary_barriers));
  }
  for (const int built : met) CHECK(built >= found_in(100));
  CHECK(beside_tensor >= found_in(100));
  CHECK(won[0] > 0);
  CHECK((won[1] + won[2] > 0 || cases(24U) < 24U));
  CHECK(excluded > 0);
}

TEST_CASE("a search drops candidates without vocabulary parallelism with their reason") {
  const auto text = [](const std::string& vocabulary, const std::string& layout, const std::string& rest) {
    return "model: {vocabulary: " + vocabulary +
           ", hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*8\"}\ncluster: {machine: dgx-h100}\ntraining: "
           "{sequence: 64, global_batch: 32" +
           rest + "}\nlayout: {vocabulary: auto, " + layout + "}\nschedule: [1f1b, gpipe]\nsplit: uniform\n";
  };
  const std::string open = "pipeline: auto, tensor: auto, data: {degree: auto, sharding: [none, zero1, zero2]}";
  const SearchResult all = searched(text("500", open, ", offload: [none, optimizer]"));
  CHECK(says(all, "cannot be planned yet with sharding zero2"));
  CHECK(says(all, "cannot be planned yet with offload"));
  CHECK(says(all, "a vocabulary of 500 does not divide over 8 pipeline ranks"));
  CHECK(says(all, "a vocabulary of 500 does not divide over 2 pipeline ranks of 4 tensor ranks each"));
  const SearchResult kinds =
      searched(text("512", "pipeline: 2, tensor: {degree: 4, kind: auto, sequence_parallel: auto, asynchronous: auto}",
                    ", microbatch: 2"));
  CHECK(says(kinds, "cannot be planned yet with a 2d tensor layout"));
  CHECK(says(kinds, "cannot be planned yet with asynchronous tensor parallelism"));
  CHECK(says(all, "the whole head of gpipe cannot be planned yet with a vocabulary over the pipeline"));
  // Of a pipeline of one rank there is nothing to divide.
  const SearchResult one = searched(text("512", "pipeline: 1, data: {degree: 8}", ", recompute: [none, full]"));
  CHECK(one.candidates == 2 * 2);
  CHECK(searched(text("512", "pipeline: 8", ", lora: {rank: 4}")).planning.pruned == 2 * 2);
  CHECK(says(searched(text("512", "pipeline: 8", ", lora: {rank: 4}")), "cannot be planned yet with LoRA"));
}

TEST_CASE("degrees and recompute are searched beside a vocabulary that is divided in any case") {
  const std::string text =
      "model: {vocabulary: 65536, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*8\"}\ncluster: {machine: "
      "dgx-h100}\ntraining: {sequence: 64, global_batch: 32, microbatch: [1, 2], recompute: auto}\nlayout: {pipeline: "
      "auto, data: auto, vocabulary: {barriers: 2}}\nschedule: [1f1b, zb-h1]\nsplit: dynamic\n";
  const Scenario scenario = read_text(text);
  const SearchResult found = searched(text);
  const PlanningResult all = plan_scenario(scenario, predict_by_path);
  CHECK(found.candidates == 4 * 2 * 3 * 2);
  CHECK(best_fitting(found.planning, scenario).iteration == best_fitting(all, scenario).iteration);
  for (const Layout& layout : scenario.layouts) {
    CHECK(layout.vocabulary_barriers == (layout.pipeline > 1 ? 2 : 0));
  }
}
