// `plumb plan` over open layouts from outside: its table and keys, its refusals, and the same bytes each time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "common/base/files.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/cost/profile/profile.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::require_keys;
using plumb::tests::run_plumb;

namespace {

const std::string open_layouts = R"(model:
  name: small
  vocabulary: 8192
  hidden: 64
  heads: 4
  ffn: 128
  layers: "full/dense*6"
cluster: {machine: dgx-a100, ranks: 8}
training: {sequence: 256, global_batch: 16, microbatch: auto, recompute: auto}
layout: auto
schedule: [1f1b, zb-h1]
split: dynamic
)";

}  // namespace

TEST_CASE("plan over open layouts: the best first, uniform in the table, counts that add up") {
  const Folder folder;
  const std::string file = folder.file("open.yaml", open_layouts);
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json --explain --pareto --top 4"));
  require_keys(planned, {"candidates", "pruned", "bounded", "evaluated", "simulated", "explain", "pareto"});
  CHECK(planned["finished"] == true);
  CHECK(planned["left"] == 0);
  REQUIRE(planned["candidates"].size() >= 4);
  CHECK(planned["candidates"].size() <= 5);
  std::set<std::string> splits;
  double before = 0;
  for (const Json& candidate : planned["candidates"]) {
    require_keys(candidate, {"layout", "schedule", "split", "microbatch", "recompute", "iteration_s", "peak_bytes",
                             "fits", "reason", "sequence_parallel", "order"});
    splits.insert(candidate["split"].get<std::string>());
    CHECK(candidate["iteration_s"].get<double>() >= before);
    before = candidate["iteration_s"].get<double>();
  }
  CHECK(splits.contains("uniform"));
  std::int64_t left_out = 0;
  for (const Json& group : planned["explain"]) {
    if (group["why"] != "does_not_fit") left_out += group["candidates"].get<std::int64_t>();
  }
  CHECK(left_out == planned["pruned"].get<std::int64_t>() + planned["bounded"].get<std::int64_t>());
  double time = 0;
  double bytes = 1e18;
  for (const Json& point : planned["pareto"]) {
    CHECK(point["iteration_s"].get<double>() > time);
    CHECK(point["peak_bytes"].get<double>() < bytes);
    time = point["iteration_s"].get<double>();
    bytes = point["peak_bytes"].get<double>();
  }
  CHECK(planned["pareto"].size() > 1);
}

TEST_CASE("plan finds the fewest nodes on which something fits") {
  const Folder folder;
  const std::string text =
      "model: llama-3-8b\ncluster: {machine: dgx-a100, nodes: auto, memory: 20 GiB}\n"
      "training: {sequence: 2048, global_batch: 64}\n"
      "layout: {pipeline: auto, tensor: 2, data: auto}\n";
  const std::string file = folder.file("nodes.yaml", text);
  const Json planned = json_of(run_plumb(folder, "plan --engine path --json " + file));
  const int nodes = planned["nodes"].get<int>();
  CHECK(nodes > 1);
  CHECK(planned["too_few_nodes"].size() > 0);
  for (const Json& few : planned["too_few_nodes"]) {
    const std::string fixed = folder.file("few.yaml", replaced(text, "auto, memory", few.dump() + ", memory"));
    CHECK(run_plumb(folder, "plan --engine path " + fixed).status == 2);
  }
  const std::string enough =
      folder.file("enough.yaml", replaced(text, "auto, memory", std::to_string(nodes) + ", memory"));
  CHECK(json_of(run_plumb(folder, "plan --engine path --json " + enough))["candidates"] == planned["candidates"]);
  CHECK_THAT(run_plumb(folder, "plan --engine path " + file).out,
             ContainsSubstring("nodes: " + std::to_string(nodes) + " are enough, 1"));
}

TEST_CASE("nodes: auto goes on where a layout has more ranks than a node, and reads a pipe once") {
  const Folder folder;
  const std::string file = folder.file("nodes.yaml",
                                       "model: llama-3-8b\ncluster: {machine: dgx-a100, nodes: auto}\n"
                                       "training: {sequence: 2048, global_batch: 64}\n"
                                       "layout: {tensor: 8, pipeline: 2, data: auto}\n");
  CHECK(json_of(run_plumb(folder, "plan --engine path --json " + file))["nodes"] == 2);
  const std::string pipe = folder.file("pipe");
  REQUIRE(std::system(("mkfifo '" + pipe + "' && cat '" + file + "' >'" + pipe + "' &").c_str()) == 0);
  while (!std::filesystem::exists(pipe)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(json_of(run_plumb(folder, "plan --engine path --json " + pipe))["nodes"] == 2);
}

TEST_CASE("equal plans stand in one row, and a long table says how many rows it left out") {
  const Folder folder;
  const std::string file = folder.file(
      "equal.yaml",
      "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*8\"}\n"
      "cluster: {machine: dgx-a100, ranks: 2}\ntraining: {sequence: 64, global_batch: 16, microbatch: auto}\n"
      "layout: {pipeline: 2}\nschedule: [1f1b, gpipe]\nsplit: [uniform, [4, 4]]\n");
  const std::string all = run_plumb(folder, "plan --engine path --top 100 " + file).out;
  CHECK_THAT(all, ContainsSubstring("uniform, [4, 4]") && !ContainsSubstring("more rows"));
  CHECK_THAT(run_plumb(folder, "plan --engine path --top 3 " + file).out,
             ContainsSubstring("more rows: --top ") && ContainsSubstring("best"));
}

TEST_CASE("plan over open layouts writes the same bytes with one thread and three, and without its bounds") {
  const Folder folder;
  const std::string file = folder.file("open.yaml", open_layouts);
  const std::string one = folder.file("one.json");
  const std::string three = folder.file("three.json");
  const Outcome with_one = run_plumb(folder, "plan " + file + " --explain --pareto --jobs 1 --json -o " + one);
  const Outcome with_three = run_plumb(folder, "plan " + file + " --explain --pareto --jobs 3 --json -o " + three);
  CHECK(with_one.status == 0);
  CHECK(with_one.out == with_three.out);
  CHECK(plumb::read_file(one) == plumb::read_file(three));
  const Json all = json_of(run_plumb(folder, "plan " + file + " --no-prune --no-bound --json"));
  CHECK(all["bounded"] == 0);
  CHECK(all["candidates"][0] == json_of(with_one)["candidates"][0]);
  const Json simulated = json_of(run_plumb(folder, "simulate " + one + " --json"));
  CHECK(simulated["iteration_s"] == all["candidates"][0]["iteration_s"]);
  CHECK(json_of(run_plumb(folder, "simulate " + file + " --json"))["iteration_s"] == simulated["iteration_s"]);
}

TEST_CASE(
    "plan weighs what data-parallel ranks share out, and shows the memory of each; simulate tells what it moves") {
  const Folder folder;
  const std::string file = folder.file(
      "sharing.yaml",
      "model: models/gpt2.yaml\ncluster: {machine: dgx-a100, nodes: 2}\nsoftware: {like: plumb, data_overlap: true}\n"
      "training: {sequence: 1024, global_batch: 32, microbatch: 2, precision: bf16}\nsplit: uniform\nschedule: 1f1b\n"
      "layout: {pipeline: 1, data: {degree: 16, sharding: auto}}\n");
  std::map<std::string, std::int64_t> peaks;
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json --no-prune --no-bound --top 9"));
  for (const Json& row : planned["candidates"])
    peaks[row["layout"].get<std::string>()] = row["peak_bytes"].get<std::int64_t>();
  REQUIRE(peaks.size() == 5);
  CHECK(peaks["dp16·zero1"] < peaks["dp16"]);
  CHECK(peaks["dp16·zero2"] < peaks["dp16·zero1"]);
  CHECK(peaks["dp16·fsdp"] < peaks["dp16·hsdp8x2"]);
  const std::string fsdp = folder.file("fsdp.yaml", replaced(plumb::read_file(file), "auto", "fsdp"));
  CHECK_THAT(run_plumb(folder, "simulate " + fsdp).out,
             ContainsSubstring("weights gathered in each action, gradients reduced each microbatch") &&
                 ContainsSubstring("not hidden"));
  const Json folded = json_of(run_plumb(folder, "simulate " + fsdp + " --json"));
  const Json unfolded = json_of(run_plumb(folder, "simulate " + fsdp + " --unfold --json"));
  CHECK(folded["ranks"][0]["traffic"]["data_time_s"].get<double>() > 0);
  CHECK(unfolded["ranks"].size() == 16);
  CHECK(unfolded["ranks"][9]["traffic"]["data_bytes"] == folded["ranks"][0]["traffic"]["data_bytes"]);
  CHECK(unfolded["iteration_s"].get<double>() == Approx(folded["iteration_s"].get<double>()).epsilon(1e-6));
}

TEST_CASE("how published planners would cut the best plan, as a gain over them") {
  const Folder folder;
  const Json planned = json_of(run_plumb(folder, "plan " + plumb::tests::scenario("hybrid-4-ranks") +
                                                     " --json --baseline megatron --baseline deepspeed-parameters"
                                                     " --baseline torchgpipe --baseline pipedream --baseline alpa"
                                                     " --baseline dapple --baseline deepspeed-uniform"));
  REQUIRE(planned["baselines"].size() == 7);
  const double best = planned["candidates"][planned["chosen"].get<std::size_t>()]["iteration_s"].get<double>();
  for (const Json& row : planned["baselines"]) {
    INFO(row["name"]);
    REQUIRE(row["iteration_s"].is_number());
    CHECK(row["best_to_it_fraction"].get<double>() == Approx(best / row["iteration_s"].get<double>() - 1));
  }
  const Json twice = json_of(
      run_plumb(folder, "plan " + plumb::tests::scenario("demo") + " --json --engine path --baseline alpa alpa"));
  CHECK(twice["baselines"].size() == 1);
  refuses(run_plumb(folder, "plan " + plumb::tests::scenario("demo") + " --baseline pipedreem"),
          {"--baseline: unknown baseline 'pipedreem'", "did you mean 'pipedream'?"});
}

TEST_CASE("where data degrees by stage are open, planners of replicas choose them, as a gain over them") {
  const Folder folder;
  const Json planned = json_of(run_plumb(folder, "plan " + plumb::tests::scenario("replicated-stages-16-pcie") +
                                                     " --json --top 3 --baseline megatron --baseline pipedream"
                                                     " --baseline alpa --baseline dapple"));
  const Json best = planned["candidates"][planned["chosen"].get<std::size_t>()];
  CHECK(best["layout"] == "pp2·dp15-1");
  const auto layout = [](const Json& row) { return row["layout"].get<std::string>(); };
  const Json& candidates = planned["candidates"];
  CHECK(std::ranges::any_of(candidates, [&](const Json& row) { return layout(row).find('-') == std::string::npos; }));
  // Uniform is the uniform split of stages alike: equal numbers of layers on 15 ranks and on one are nobody's.
  const auto uniform = std::ranges::find_if(candidates, [](const Json& row) { return row["split"] == "uniform"; });
  REQUIRE(uniform != candidates.end());
  CHECK(layout(*uniform).find('-') == std::string::npos);
  CHECK(best["to_uniform_fraction"].get<double>() ==
        Approx(best["iteration_s"].get<double>() / (*uniform)["iteration_s"].get<double>() - 1));
  REQUIRE(planned["baselines"].size() == 4);
  CHECK(layout(planned["baselines"][0]) == "pp2·dp15-1");  // which cuts only
  CHECK(layout(planned["baselines"][2]) == "dp16");
  for (const Json& row : planned["baselines"]) {
    INFO(row["name"]);
    CHECK(row["best_to_it_fraction"].get<double>() ==
          Approx(best["iteration_s"].get<double>() / row["iteration_s"].get<double>() - 1));
    CHECK(row["best_to_it_fraction"].get<double>() < 1e-9);
  }
}

TEST_CASE("plan refuses layouts that are not the cluster's GPUs, and says why nothing fits") {
  const Folder folder;
  const std::string wrong = replaced(open_layouts, "layout: auto", "layout: {pipeline: [3, 5], data: auto}");
  refuses(run_plumb(folder, "plan " + folder.file("wrong.yaml", wrong)), {"wrong.yaml:10:20", "the 8 ranks"});
  const std::string full = replaced(open_layouts, "ranks: 8}", "ranks: 8, memory: 100 KB}");
  refuses(run_plumb(folder, "plan " + folder.file("full.yaml", full)), {"nothing fits in memory", "too much"});
  const Outcome explained = run_plumb(folder, "plan " + folder.file("full.yaml", full) + " --explain");
  CHECK(explained.status == 2);
  CHECK_THAT(explained.out, ContainsSubstring("does not fit") && ContainsSubstring("evaluated, needs"));
  const std::string alone = replaced(open_layouts, "layout: auto", "layout: {pipeline: auto}");
  refuses(run_plumb(folder, "plan " + folder.file("alone.yaml", replaced(alone, "ranks: 8", "nodes: 8, ranks: 64"))),
          {"tensor and data stay 1", "the product of the degrees is the 64 ranks"});
  const std::string batch =
      replaced(open_layouts, "global_batch: 16, microbatch: auto", "global_batch: 7, microbatch: 7");
  const Outcome odd = run_plumb(folder, "plan " + folder.file("odd.yaml", batch) + " --json");
  const Json planned = json_of(odd);
  for (const Json& candidate : planned["candidates"])
    CHECK(candidate["layout"].get<std::string>().find("dp") == std::string::npos);
}

TEST_CASE("a time limit of nothing still answers or says that there was no time") {
  const Folder folder;
  const Outcome outcome = run_plumb(folder, "plan " + folder.file("open.yaml", open_layouts) + " --time-limit 0");
  INFO(outcome.err);
  CHECK(outcome.status == 3);
  CHECK_THAT(outcome.err, ContainsSubstring("time"));
}

TEST_CASE("a time limit beyond the clock is no limit, and one that is no time is refused") {
  const Folder folder;
  const std::string plan = "plan " + folder.file("open.yaml", open_layouts) + " --json --time-limit ";
  CHECK(json_of(run_plumb(folder, plan + "1e99"))["finished"] == true);
  for (const std::string wrong : {"-1", "nan", "inf", "1e999", "soon"}) {
    refuses(run_plumb(folder, plan + wrong), {"--time-limit", "expected a number from 0 on"});
  }
}

TEST_CASE("with a settled layout a time limit ends between candidates, and within them") {
  const Folder folder;
  const std::string settled = replaced(replaced(open_layouts, "layout: auto", "layout: {pipeline: 8}"), "*6", "*16");
  const std::string many = replaced(settled, "schedule: [1f1b, zb-h1]", "schedule: [1f1b, {name: zb-auto, chunks: 2}]");
  const std::string file = folder.file("settled.yaml", replaced(many, "global_batch: 16", "global_batch: 4096"));
  const Outcome outcome = run_plumb(folder, "plan " + file + " --engine path --json --time-limit 2");
  const Json planned = json_of(outcome);
  CHECK(planned["finished"] == false);
  CHECK(planned["left"] > 0);
  CHECK(planned["candidates"][0]["fits"] == true);
}

// A batch system sends SIGTERM when a job's time is over, often to the process and then to its group, and keeps what
// stands on stderr.
TEST_CASE("SIGTERM keeps the best so far, and a long search says in a log that it goes on") {
  const Folder folder;
  const std::string many =
      replaced(replaced(open_layouts, "ranks: 8}", "nodes: 8, ranks: 64}"), "layers: \"full/dense*6\"",
               "layers: \"full/dense*3, (full/dense, none/dense)*14, full/dense*3\"");
  const std::string slow =
      replaced(replaced(many, "schedule: [1f1b, zb-h1]", "schedule: [1f1b, {name: zb-auto, chunks: [1, 2]}]"),
               "global_batch: 16", "global_batch: 1024");
  const std::string until_said =
      "n=0; until grep -q planning: " + folder.file(".err") + " || [ $n -ge 200 ]; do sleep 0.1; n=$((n + 1)); done";
  const Outcome outcome = run_plumb(
      folder, "plan " + folder.file("slow.yaml", slow) + " --engine path --no-bound --jobs 1",
      "PLUMB_PROGRESS=often sh -c '\"$@\" & " + until_said + "; kill -TERM $!; sleep 0.01; kill -TERM $!; wait $!' sh");
  INFO(outcome.err);
  // Where a machine is slow nothing may have been found by then, and that is said.
  const bool found = outcome.status == 0;
  CHECK(outcome.status == (found ? 0 : 3));
  if (found) CHECK_THAT(outcome.out, ContainsSubstring("ended early: the best so far"));
  if (!found) CHECK_THAT(outcome.err, ContainsSubstring("was ended before it found a candidate that fits"));
  CHECK_THAT(outcome.err, ContainsSubstring("planning: "));
  CHECK(outcome.err.find('\033') == std::string::npos);
  CHECK(outcome.err.find('\r') == std::string::npos);
}

namespace {

// Of the small scenario's shapes, without blocks.
plumb::Profile empty_profile(const plumb::Scenario& scenario, int samples) {
  plumb::Profile profile;
  profile.samples = samples;
  profile.transport = "local";
  profile.transfer.bandwidth = {1e9};
  profile.shapes = {.model = scenario.model.name,
                    .model_digest = plumb::model_digest(scenario.model),
                    .sequence = 32,
                    .microbatch = 1,
                    .precision = scenario.training.precision,
                    .optimizer = scenario.training.optimizer};
  return profile;
}

}  // namespace

TEST_CASE("plan and show say which measured blocks are too noisy to trust, in words and as data") {
  const Folder folder;
  const auto profile_of = [&](double spread) {
    const plumb::Scenario scenario = plumb::read_scenario(folder.file("s.yaml", plumb::tests::small));
    plumb::Profile profile = empty_profile(scenario, 30);
    profile.busy_ranks = 2;
    const std::vector<plumb::ComputeCost> blocks = plumb::block_costs(scenario, 1);
    for (const int block : {0, 1, 7}) {
      profile.blocks.push_back({.block = plumb::block_key(scenario.model, block),
                                .cost = blocks[static_cast<std::size_t>(block)],
                                .spread_fraction = block == 7 ? spread : 0.02,
                                .count = block == 1 ? 6 : 1});
    }
    return folder.file("p" + std::to_string(spread) + ".yaml", plumb::to_yaml(profile));
  };
  const auto scenario_with = [&](const std::string& profile) {
    return folder.file("with.yaml", plumb::tests::small + "profile: " + profile + "\n");
  };
  for (const std::string command : {"plan ", "show "}) {
    const std::string noisy = command + scenario_with(profile_of(6.12));
    const Json told = json_of(run_plumb(folder, noisy + " --json"));
    REQUIRE(told["noisy_blocks"].size() == 1);
    CHECK(told["noisy_blocks"][0]["block"] == "head");
    CHECK(told["noisy_blocks"][0]["spread_fraction"] == 6.12);
    CHECK(told["noisy_blocks"][0]["median_uncertainty_fraction"] == Approx(6.12 * 0.3324).epsilon(0.001));
    CHECK_THAT(
        run_plumb(folder, noisy).out,
        ContainsSubstring("profile: 1 of 3 kinds of block was measured too unevenly to trust what is predicted from "
                          "it:\n  head (spread 612.0%"));
    const std::string even = command + scenario_with(profile_of(0.03));
    CHECK(json_of(run_plumb(folder, even + " --json"))["noisy_blocks"].empty());
    CHECK(run_plumb(folder, even).out.find("unevenly") == std::string::npos);
    const std::string without = command + folder.file("s.yaml", plumb::tests::small) + " --json";
    CHECK_FALSE(json_of(run_plumb(folder, without)).contains("noisy_blocks"));
  }
  // Of another model it is named, although a candidate's reason has no place.
  const std::string foreign = profile_of(0.03);
  const std::string wider =
      folder.file("wider.yaml", plumb::tests::replaced(plumb::tests::small, "ffn: 128", "ffn: 256"));
  plumb::tests::refuses(run_plumb(folder, "plan " + wider + " --profile " + foreign),
                        {"wider.yaml", "the profile " + foreign + " was measured for", "this needs"});
  // What stands on such a profile says so as well: a plan, a prediction, and differences from it.
  const std::string doubt = "measured too unevenly to trust";
  const std::string noisy = scenario_with(profile_of(6.12));
  const std::string plan = folder.file("plan.json");
  const std::string predicted = folder.file("predicted.json");
  const std::string other = folder.file("other.json");
  REQUIRE(run_plumb(folder, "plan " + noisy + " -o " + plan).status == 0);
  CHECK_THAT(run_plumb(folder, "show " + plan).out, ContainsSubstring(doubt));
  CHECK_THAT(run_plumb(folder, "simulate " + plan + " -o " + predicted).out,
             ContainsSubstring("1 of 3 kinds of block " + doubt));
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + other).status == 0);
  CHECK_THAT(run_plumb(folder, "diff " + predicted + " " + other).out, ContainsSubstring(doubt));
  CHECK(json_of(run_plumb(folder, "diff " + predicted + " " + other + " --json"))["remarks"].size() == 1);
  const std::string page = folder.file("page.html");
  REQUIRE(run_plumb(folder, "report " + predicted + " -o " + page).status == 0);
  CHECK_THAT(plumb::read_file(page), ContainsSubstring("was " + doubt));
  const std::string even = scenario_with(profile_of(0.03));
  CHECK(run_plumb(folder, "simulate " + even).out.find(doubt) == std::string::npos);
}

TEST_CASE("plan says tokens/s and MFU as simulate does, and a gain over what does not fit as such") {
  const Folder folder;
  const std::string file = std::string(PLUMB_SOURCE_DIR) + "/scenarios/llama-3-8b-dgx-h100.yaml";
  const std::string plan = folder.file("plan.json");
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json -o " + plan));
  const Json simulated = json_of(run_plumb(folder, "simulate " + plan + " --json"));
  const Json& best = planned["candidates"][planned["chosen"].get<std::size_t>()];
  CHECK(best["mfu"].get<double>() == Approx(simulated["mfu"].get<double>()));
  CHECK(best["tokens_per_s"].get<double>() == Approx(simulated["tokens_per_s"].get<double>()));
  const std::string text = run_plumb(folder, "plan " + file + " --schedule zb-h1").out;
  CHECK_THAT(text, ContainsSubstring("(too large)") && ContainsSubstring("MFU"));
  CHECK_THAT(text, ContainsSubstring("compared with a uniform split that does not fit; none that was evaluated does"));
  CHECK_THAT(text, ContainsSubstring("with a shorter first and last stage by hand (Megatron-LM), ["));
  // Also where the best is not marked, but a row is.
  CHECK_THAT(run_plumb(folder, "plan " + file).out,
             ContainsSubstring("  (too large): compared with a uniform split that does not fit.\n"));
  const Json zb = json_of(run_plumb(folder, "plan " + file + " --schedule zb-h1 --json"));
  CHECK(zb["candidates"][zb["chosen"].get<std::size_t>()]["uniform_fits"] == false);
  CHECK(zb["first_last"]["split_layers"].size() == 8);
}

TEST_CASE("schedule and split are accepted as a plan's table prints them") {
  const Folder folder;
  const std::string file = std::string(PLUMB_SOURCE_DIR) + "/scenarios/llama-3-8b-dgx-h100.yaml";
  const auto choice = [&](const std::string& schedule, const std::string& split) {
    return json_of(run_plumb(folder, "plan " + file + " --engine path --json --schedule '" + schedule + "' --split '" +
                                         split + "'"))["candidates"][0];
  };
  const Json pasted = choice("interleaved-1f1b, 2 chunks", "[1, 2 × 9, 3 × 3, 2 × 2, 0]");
  const Json stated = choice("{name: interleaved-1f1b, chunks: 2}", "[1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 2, 2, 0]");
  CHECK(pasted == stated);
  const auto refused = [&](const std::string& schedule) {
    return run_plumb(folder, "plan " + file + " --schedule '" + schedule + "'");
  };
  refuses(refused("1f1b, 2 chunks"), {"schedule '1f1b' has no use for '2 chunks'"});
  refuses(refused("interleaved-1f1b, 0 chunks"), {"'0 chunks' is not from 1 to"});
  refuses(refused("zb-v, 3 chunks"), {"cannot have 3 chunks a rank"});
  refuses(refused("interleaved-2f1b, 2 chunks"), {"did you mean"});
}

TEST_CASE("simulate draws once what repeats, as wide as is asked for") {
  const Folder folder;
  const std::string file = std::string(PLUMB_SOURCE_DIR) + "/scenarios/llama-3-8b-dgx-h100.yaml";
  const std::string text = run_plumb(folder, "simulate " + file + " --width 60").out;
  CHECK_THAT(text, ContainsSubstring("warm-up") && ContainsSubstring("cool-down") && ContainsSubstring("(times: s)"));
  CHECK_THAT(text, Catch::Matchers::Matches("[^]* in stage [0-9]+'s [a-z ]+ of microbatch [0-9]+: states [^]*"));
  refuses(run_plumb(folder, "simulate " + file + " --width 1"), {"--width"});
}

// Of software that waits for its messages and has an overhead: what a plan says of it holds with measured costs, too.
TEST_CASE("a plan with a profile keeps its software: as the scenario with the profile") {
  const Folder folder;
  const std::string software = "software: {like: plumb, exchange: synchronous, step_overhead: 20 ms}\n";
  const std::string file = folder.file("s.yaml", plumb::tests::small + software);
  const plumb::Scenario scenario = plumb::read_scenario(file);
  plumb::Profile profile = empty_profile(scenario, 5);
  const std::vector<plumb::ComputeCost> blocks = plumb::block_costs(scenario, 1);
  for (const int block : {0, 1, 7}) {
    profile.blocks.push_back({.block = plumb::block_key(scenario.model, block),
                              .cost = blocks[static_cast<std::size_t>(block)],
                              .count = block == 1 ? 6 : 1});
    profile.blocks.back().cost.forward = {1e-3 * (block + 1)};
  }
  const std::string measured = " --profile " + folder.file("p.yaml", plumb::to_yaml(profile)) + " --json";
  const std::string plan = folder.file("plan.json");
  REQUIRE(run_plumb(folder, "plan " + file + " --split uniform -o " + plan).status == 0);
  const std::string uniform =
      folder.file("u.yaml", replaced(plumb::tests::small, "split: dynamic", "split: uniform") + software);
  const Json of_plan = json_of(run_plumb(folder, "simulate " + plan + measured));
  const Json of_scenario = json_of(run_plumb(folder, "simulate " + uniform + measured));
  CHECK(of_plan["iteration_s"] == of_scenario["iteration_s"]);
  CHECK(of_plan["iteration_s"].get<double>() > 20e-3);
}
