#include "common/planner/remedies.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/scenario_file/scenario_rules.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/planner/change_scenario.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string text_of(const std::string& layout, const std::string& memory, const std::string& training = "") {
  return "model: {vocabulary: 32000, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\"}\n"
         "cluster: {machine: dgx-h100, nodes: 2, memory: " +
         memory + "}\ntraining: {sequence: 512, global_batch: 16, precision: bf16" + training + "}\nlayout: {" +
         layout + "}\n" +
         (layout.find("prefetch") == std::string::npos ? "" : "software: {like: plumb, data_overlap: true}\n");
}

// Every remedy, written into the text, is read as the planner had it, and fits.
std::vector<std::string> checked_remedies(const std::string& text) {
  std::vector<std::string> texts;
  const Scenario scenario = read_text(text);
  const Candidate nearest = plan_scenario(scenario, predict_by_path).candidates.front();
  if (nearest.fits) return {};
  for (const Remedy& remedy : remedies(scenario, nearest)) {
    CAPTURE(text, remedy.text);
    CHECK_NOTHROW(require_valid(remedy.scenario));
    const Scenario followed = changed_scenario(text, remedy.text);
    CHECK(followed.layout == remedy.scenario.layout);
    CHECK(followed.cluster == remedy.scenario.cluster);
    CHECK(followed.training == remedy.scenario.training);
    const Candidate best = best_fitting(plan_scenario(followed, predict_by_path), followed);
    CHECK(best.peak_bytes == remedy.candidate.peak_bytes);
    CHECK(best.iteration == remedy.candidate.iteration);
    texts.push_back(remedy.text);
  }
  return texts;
}

bool has(const std::vector<std::string>& texts, const std::string& part) {
  return std::ranges::any_of(texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

// Half the data degree leaves groups of eight in four ranks.
TEST_CASE("remedies for groups of data-parallel ranks are valid layouts that fit when they are followed") {
  const std::vector<std::string> groups = {
      "sharding: {kind: hsdp, shard: 8}",
      "sharding: {kind: hsdp, shard: 4, replicate: 4}",
      "sharding: zero++",
      "sharding: fsdp, secondary_shard: 8",
      "sharding: fsdp, reshard_after_forward: 8",
      "sharding: zero3, quantized_gradients: 8",
      "sharding: zero3, quantized_weights: true",
      "sharding: zero2, reduce: last_microbatch",
      "sharding: fsdp, reshard_after_forward: false, reduce: last_microbatch",
      "sharding: fsdp, prefetch: 2, layers_per_unit: 2",
      "sharding: zero1",
      "sharding: none",
  };
  std::size_t found = 0;
  for (const std::string& group : groups) {
    for (const std::string memory : {"100 MiB", "200 MiB", "400 MiB", "800 MiB"}) {
      found += checked_remedies(text_of("pipeline: 1, data: {degree: 16, " + group + "}", memory)).size();
    }
  }
  CHECK(found > 3 * groups.size());
}

TEST_CASE("a remedy names the groups that a smaller data degree leaves") {
  const std::string hsdp =
      text_of("pipeline: 1, data: {degree: 16, sharding: {kind: hsdp, shard: 8}}", "300 MiB") + "software: plumb\n";
  CHECK(has(checked_remedies(hsdp), "data: {degree: 2, sharding: {kind: hsdp, shard: 2, replicate: 1}}"));
}

TEST_CASE("offload is a remedy wherever it fits, behind five others too") {
  for (const std::string rule : {"{kind: hsdp, shard: 8}", "zero1", "fsdp", "none"}) {
    const std::string layout = "pipeline: 1, data: {degree: 16, sharding: " + rule + "}";
    const auto peak = [&](const std::string& offload) {
      const Scenario roomy = read_text(text_of(layout, "80 GiB", ", microbatch: 1" + offload));
      return best_fitting(plan_scenario(roomy, predict_by_path), roomy).peak_bytes;
    };
    const Bytes needed = peak(", offload: optimizer");
    REQUIRE(needed < peak(""));
    const std::string tight = text_of(layout, std::to_string(needed.value) + " B", ", microbatch: 1");
    CAPTURE(rule, checked_remedies(tight));
    CHECK(has(checked_remedies(tight), "offload: optimizer"));
  }
}

// Without a global batch each stage has four microbatches: GPipe saves all of them.
TEST_CASE("a remedy keeps the batch of a scenario that names none") {
  const std::string text =
      "model: {vocabulary: 32000, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\"}\n"
      "cluster: {machine: dgx-h100, nodes: 2, ranks: 2, memory: 1500 MiB}\n"
      "training: {sequence: 512, precision: bf16}\nlayout: {pipeline: 2}\nschedule: gpipe\n";
  CAPTURE(checked_remedies(text));
  CHECK(has(checked_remedies(text), "training: {global_batch: 8}"));
}

TEST_CASE("a scenario that is read keeps every rule") {
  for (const std::string layout :
       {"pipeline: 1, data: {degree: 16, sharding: zero++}", "pipeline: 2, data: {degree: 8}",
        "pipeline: 2, tensor: {degree: 4, sequence_parallel: true}, data: {degree: 2}"}) {
    CHECK_NOTHROW(require_valid(read_text(text_of(layout, "80 GiB"))));
  }
}

TEST_CASE("a changed scenario that no file could say is refused") {
  const Scenario scenario =
      read_text(text_of("pipeline: 1, data: {degree: 16, sharding: {kind: hsdp, shard: 8}}", "1 GiB"));
  const auto refused = [&](const auto& change) {
    Scenario other = scenario;
    change(other);
    CHECK_THROWS_AS(require_valid(other), InputError);
  };
  refused([](Scenario& other) { other.layout.data.degree = 8; });
  refused([](Scenario& other) { other.layout.tensor.degree = 2; });
  refused([](Scenario& other) { other.cluster.ranks = 8; });
  refused([](Scenario& other) { other.cluster.nodes = 1; });
  refused([](Scenario& other) { other.training.global_batch = 8; });
  refused([](Scenario& other) {
    other.layout.data = {};
    other.layout.pipeline = 16;
  });
  refused([](Scenario& other) { other.schedules = {{.name = "seq-1f1b", .slices = 3}}; });
  refused([](Scenario& other) { other.splits = {{.method = SplitMethod::counts, .counts = {4, 4}}}; });
}
