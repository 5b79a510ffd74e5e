#include "common/planner/shortfall.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string hint_of(const Scenario& scenario) {
  try {
    (void)best_fitting(plan_scenario(scenario, predict_by_path), scenario);
  } catch (const InputError& error) {
    return error.hint();
  }
  return "it fits";
}

}  // namespace

TEST_CASE("when nothing fits: by how much, what takes it, and a change that then does fit") {
  const std::string training = "training: {sequence: 256, global_batch: 8, microbatch: 4}\n";
  const auto scenario_with = [&](const std::string& memory, const std::string& rest) {
    return scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2" + memory + "}\n" + rest +
                         "split: dynamic\n");
  };
  const Scenario roomy = read_text(scenario_with("", training));
  Bytes needed = {std::numeric_limits<std::int64_t>::max()};
  for (const Candidate& candidate : plan_scenario(roomy, predict_by_path).candidates) {
    needed = std::min(needed, candidate.peak_bytes);
  }
  const Bytes memory = needed - needed / std::int64_t{8};
  const Scenario tight = read_text(scenario_with(", " + memory_line(memory), training));

  const PlanningResult result = plan_scenario(tight, predict_by_path);
  for (const Candidate& candidate : result.candidates) {
    CHECK_FALSE(candidate.fits);
    CHECK_THAT(candidate.reason, ContainsSubstring("too much"));
  }
  // The one that lacks least comes first.
  REQUIRE(result.candidates.size() == 2);
  CHECK(result.candidates[0].peak_bytes < result.candidates[1].peak_bytes);
  std::string hint;
  std::string problem;
  std::string where;
  try {
    (void)best_fitting(result, tight);
  } catch (const InputError& error) {
    problem = error.problem();
    where = error.where();
    hint = error.hint();
  }
  CHECK_THAT(where, ContainsSubstring("scenario.yaml:11:10"));  // its cluster
  CHECK_THAT(problem, ContainsSubstring("nothing fits in memory") &&
                          ContainsSubstring("too much, in stage 0's forward of") &&
                          ContainsSubstring("kept activations"));
  CHECK_THAT(hint, ContainsSubstring("this would fit: microbatch: "));
  CHECK_THAT(hint, ContainsSubstring("recompute: full"));
  CHECK_THAT(hint, ContainsSubstring("pipeline: "));
  CHECK_THAT(hint, ContainsSubstring("; steps against the ") && ContainsSubstring("if it fitted"));

  // Each of them, written into the scenario.
  const std::string microbatch = hint.substr(hint.find("microbatch: "), std::string("microbatch: 2").size());
  const std::vector<std::string> changed = {
      scenario_with(", " + memory_line(memory), "training: {sequence: 256, global_batch: 8, " + microbatch + "}\n"),
      scenario_with(", " + memory_line(memory),
                    "training: {sequence: 256, global_batch: 8, microbatch: 4, recompute: full}\n")};
  for (const std::string& text : changed) {
    CAPTURE(text);
    const Scenario scenario = read_text(text);
    CHECK_NOTHROW(best_fitting(plan_scenario(scenario, predict_by_path), scenario));
  }
}

TEST_CASE("where no candidate can be built, the first reason and hint of each kind are said") {
  const auto error_of = [](const std::string& schedules) {
    const Scenario scenario = read_text(
        "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*8\"}\n"
        "training: {sequence: 64, global_batch: 8, microbatch: [1, 2], recompute: full}\n"
        "cluster: {machine: dgx-a100}\nlayout: {pipeline: 4}\nsplit: uniform\nschedule: " +
        schedules + "\n");
    try {
      (void)best_fitting(plan_scenario(scenario, predict_by_path), scenario);
    } catch (const InputError& error) {
      return std::pair(error.problem(), error.hint());
    }
    return std::pair(std::string(), std::string());
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  // Once, not for each microbatch; the hint that two kinds have in common once as well.
  const auto [problem, hint] = error_of("[bpipe, {name: seq-1f1b, slices: 4}, {name: seq-1f1b, slices: 2}]");
  CHECK(problem.starts_with("no candidate can be built: "));
  CHECK(count(problem, "evicts activations") == 1);
  CHECK(count(problem, "a schedule of slices of sequences") == 1);
  CHECK(count(hint, "recompute: {layers: …}") == 1);
  const auto [others, hints] = error_of("[{name: interleaved-1f1b, chunks: 4}, bpipe]");
  CHECK(count(others, "evicts activations") == 1);
  CHECK(count(others, "8 layers") == 1);
  CHECK(count(hints, "recompute: {layers: …}") == 1);
}

TEST_CASE("where no candidate can be built, what refuses is named, not the cluster") {
  Scenario scenario = read_text(scenario_text("split: uniform\n"));
  scenario.profile_file = "measured.yaml";
  const auto error_of = [&](const std::vector<std::string>& refusing) {
    PlanningResult result;
    for (const std::string& where : refusing) {
      result.candidates.emplace_back();
      result.candidates.back().reason = "refused by " + where;
      result.candidates.back().where = where;
    }
    try {
      (void)best_fitting(result, scenario);
    } catch (const InputError& error) {
      return std::pair(error.where(), error.problem());
    }
    return std::pair(std::string(), std::string());
  };
  CHECK(error_of({"training"}).first.ends_with("scenario.yaml: training"));
  CHECK(error_of({"profile"}).first == "measured.yaml");
  // Of several what each is about stands before it, and the file once.
  const auto [file, both] = error_of({"training", "profile"});
  CHECK(file.ends_with("scenario.yaml"));
  CHECK(both == "no candidate can be built: training: refused by training; measured.yaml: refused by profile");
}

TEST_CASE("more ranks than the machines hold are proposed with the machines that they need") {
  const auto scenario_with = [](int nodes, int pipeline, const std::string& memory) {
    return read_text(
        "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*24\"}\n"
        "training: {sequence: 16, global_batch: 4, microbatch: 1, recompute: full}\n"
        "cluster: {machine: dgx-a100, nodes: " +
        std::to_string(nodes) + ", ranks: " + std::to_string(pipeline) + memory +
        "}\nlayout: {pipeline: " + std::to_string(pipeline) + "}\nsplit: [dynamic, uniform]\n");
  };
  // Twelve ranks are one machine of eight and half of another.
  const Scenario wide = scenario_with(2, 12, "");
  const Bytes needed = best_fitting(plan_scenario(wide, predict_by_path), wide).peak_bytes;
  const Scenario tight = scenario_with(1, 6, ", " + memory_line(needed));
  CHECK_THAT(hint_of(tight), ContainsSubstring("layout: {pipeline: 12} with cluster: {nodes: 2, ranks: 12} (" +
                                               to_text(needed) + ", step -"));
}

// Half of each matrix is on each of two ranks of a tensor group, instead of two replicas of all of it.
TEST_CASE("a larger tensor degree is proposed for data-parallel ranks, or for more ranks, with what it comes to") {
  const auto scenario_with = [](int tensor, int data, const std::string& memory) {
    return read_text(
        "model: {vocabulary: 512, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*2\", tied_embeddings: "
        "false}\n"
        "training: {sequence: 64, global_batch: 8, microbatch: 1, recompute: full}\n"
        "cluster: {machine: dgx-a100" +
        memory + "}\nlayout: {pipeline: 2, tensor: {degree: " + std::to_string(tensor) +
        "}, data: {degree: " + std::to_string(data) + "}}\nschedule: 1f1b\nsplit: [dynamic, uniform]\n");
  };
  const Scenario halved = scenario_with(2, 1, "");
  const Candidate found = best_fitting(plan_scenario(halved, predict_by_path), halved);
  const std::string limit = ", " + memory_line(found.peak_bytes);
  const std::string comes_to = " (" + to_text(found.peak_bytes) + ", step ";
  const Scenario replicated = scenario_with(1, 2, limit);
  const std::string hint = hint_of(replicated);
  CHECK_THAT(hint, ContainsSubstring("layout: {tensor: {degree: 2}, data: {degree: 1, sharding: none}}" + comes_to));
  // By how much: of the step as it would be if it fitted.
  const Scenario roomy = scenario_with(1, 2, "");
  const Candidate before = best_fitting(plan_scenario(roomy, predict_by_path), roomy);
  CHECK_THAT(hint, ContainsSubstring(comes_to + change_text(found.iteration / before.iteration - 1) + ")"));
  CHECK_THAT(hint_of(scenario_with(1, 1, limit)),
             ContainsSubstring("layout: {tensor: {degree: 2}} with cluster: {ranks: 4}" + comes_to));
}

TEST_CASE("a sharding that frees enough is proposed, as a scenario that says so comes to") {
  const auto scenario_with = [](const std::string& data, const std::string& memory) {
    return read_text(
        "model: {vocabulary: 512, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*2\", tied_embeddings: "
        "false}\n"
        "training: {sequence: 64, global_batch: 8, microbatch: 1, recompute: full}\n"
        "cluster: {machine: dgx-a100" +
        memory + "}\nlayout: {pipeline: 1, data: {degree: 4" + data +
        "}}\nschedule: 1f1b\nsplit: uniform\nsoftware: plumb\n");
  };
  const auto peak_of = [&](const std::string& data) {
    const Scenario scenario = scenario_with(data, "");
    return best_fitting(plan_scenario(scenario, predict_by_path), scenario).peak_bytes;
  };
  REQUIRE(peak_of(", sharding: zero2") < peak_of(", sharding: zero1"));
  REQUIRE(peak_of(", sharding: zero3") < peak_of(", sharding: zero2"));
  for (const std::string rule : {"zero1", "zero2", "zero3"}) {
    const Bytes needed = peak_of(", sharding: " + rule);
    CHECK_THAT(hint_of(scenario_with("", ", " + memory_line(needed))),
               ContainsSubstring("layout: {data: {sharding: " + rule + "}} (" + to_text(needed) + ", step "));
  }
  const std::string kept = ", sharding: fsdp, reshard_after_forward: false, reduce: last_microbatch";
  const std::string let_go = "sharding: fsdp, reshard_after_forward: true, reduce: each_microbatch";
  const Bytes needed = peak_of(", " + let_go);
  REQUIRE(needed < peak_of(kept));
  CHECK_THAT(hint_of(scenario_with(kept, ", " + memory_line(needed))),
             ContainsSubstring("layout: {data: {" + let_go + "}} (" + to_text(needed) + ", step "));
}

// With SGD in fp32 there are no states to offload.
TEST_CASE("weights on the host are proposed where each action gathers its own, as a scenario that says so comes to") {
  const auto scenario_with = [](const std::string& rule, const std::string& offload, const std::string& memory) {
    return read_text(
        "model: {vocabulary: 512, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\", tied_embeddings: "
        "false}\n"
        "training: {sequence: 64, global_batch: 8, microbatch: 1, recompute: full, precision: fp32, optimizer: sgd" +
        offload + "}\ncluster: {machine: dgx-a100" + memory +
        "}\nlayout: {pipeline: 1, data: {degree: 2, sharding: " + rule + "}}\nschedule: 1f1b\nsplit: uniform\n");
  };
  const std::string by_action = "fsdp, reshard_after_forward: true, reduce: each_microbatch";
  const Scenario there = scenario_with(by_action, ", offload: parameters", "");
  const Bytes needed = best_fitting(plan_scenario(there, predict_by_path), there).peak_bytes;
  const std::string memory = ", " + memory_line(needed);
  CHECK_THAT(hint_of(scenario_with(by_action, "", memory)),
             ContainsSubstring("offload: parameters (" + to_text(needed) + ", step +"));
  const std::string whole = "fsdp, reshard_after_forward: false, reduce: last_microbatch";
  CHECK_THAT(hint_of(scenario_with(whole, "", memory)), !ContainsSubstring("offload: parameters"));
}

TEST_CASE("when no change helps, that is said") {
  const Scenario scenario = read_text(scenario_text(
      "cluster: {machine: local-cpu, ranks: 2, cores: 2, memory: 1 KiB}\ntraining: {sequence: 32, global_batch: 8}\n"));
  CHECK_THROWS_WITH(best_fitting(plan_scenario(scenario, predict_by_path), scenario),
                    ContainsSubstring("no single change fits"));
}

// What a rank holds at its peak, each of another size and none of them alike.
TEST_CASE("the consumers of a rank's memory are named with their bytes, largest first, down to a twentieth") {
  Candidate candidate;
  candidate.plan.cluster.machine.device.memory.value = Bytes{std::int64_t{10} << 30};
  const auto gib = [](std::int64_t number) { return Bytes{number << 30}; };
  const RankSummary full{.parameter_bytes = gib(2),
                         .gradient_bytes = gib(3),
                         .optimizer_bytes = gib(1),
                         .activation_bytes = gib(20),
                         .peak_bytes = gib(26),
                         .received_bytes = {},
                         .peak = PeakMoment{.held = {.kept = gib(4), .messages = gib(9), .workspace = gib(7)},
                                            .time = {},
                                            .action = {ActionKind::backward, 1, 3}}};
  RankSummary roomier;
  roomier.peak_bytes = gib(25);
  candidate.ranks = {roomier, full, roomier};
  CHECK(describe_shortfall(candidate) ==
        "rank 1 needs 26.00 GiB of 10.00 GiB, 16.00 GiB too much, in stage 1's backward of microbatch 3: messages "
        "9.000 GiB, "
        "workspace 7.000 GiB, kept "
        "activations 4.000 GiB, gradients 3.000 GiB, parameters 2.000 GiB");
}
