// What the program `plumb` does with files that are wrong, damaged or its own input, and says of timelines and tables.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::run_plumb;
using plumb::tests::small;

TEST_CASE("bad input is refused by file and line, and leaves nothing behind") {
  const Folder folder;
  const std::string output = " -o " + folder.file("plan.json");
  const auto plan = [&](const std::string& content) {
    const std::string file = folder.file("bad.yaml", content);
    const Outcome outcome = run_plumb(folder, "plan " + file + output);
    CHECK(folder.files() == 1);
    return outcome;
  };
  refuses(plan(replaced(small, "schedule:", "schedul:")), {"bad.yaml:11:1", "schedul", "did you mean 'schedule'?"});
  refuses(plan(replaced(small, "schedule: 1f1b", "schedule: 1f1c")), {"bad.yaml:11:11", "did you mean '1f1b'?"});
  refuses(plan(replaced(small, "split: dynamic", "split: [3, 2]")), {"bad.yaml:12", "5", "6"});
  refuses(plan(replaced(replaced(small, "ranks: 2", "ranks: 8"), "pipeline: 2", "pipeline: 8")),
          {"bad.yaml", "8", "6"});
  refuses(plan(replaced(small, "microbatch: 1", "microbatch: 3")), {"bad.yaml:9", "3", "8"});
  refuses(plan(replaced(small, "hidden: 64", "hidden: [")), {"bad.yaml"});
  refuses(plan(""), {"bad.yaml"});
  refuses(plan(replaced(small, "ffn: 128", "ffn: 10000000")), {"GiB too much"});
}

TEST_CASE("a timeline, or a machine, where a scenario is expected is called what it is, in one sentence") {
  const Folder folder;
  const std::string timeline = folder.file("timeline.json");
  REQUIRE(run_plumb(folder, "simulate " + folder.file("small.yaml", small) + " --engine path -o " + timeline).status ==
          0);
  const std::string machine = std::string(PLUMB_SOURCE_DIR) + "/scenarios/machines/dgx-h100.yaml";
  for (const std::string command : {"simulate ", "show ", "plan "}) {
    for (const auto& [file, words] : {std::pair(timeline, std::pair("is a timeline", "plumb diff")),
                                      std::pair(machine, std::pair("is a machine", "cluster: {machine: "))}) {
      if (command == "show " && file == machine) continue;  // shown, not refused
      const Outcome outcome = run_plumb(folder, command + file);
      refuses(outcome, {file, words.first, words.second});
      CHECK(std::ranges::count(outcome.err, '\n') == 2);  // and its hint
    }
  }
}

// As `plumb plan <(...)` gives it: who reads it a second time finds nothing.
TEST_CASE("a scenario is read once, so that it may come through a pipe") {
  const Folder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (bool written = false; !ended; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const int end = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK);  // none while nobody reads
      if (end < 0) continue;
      if (!written) written = ::write(end, small.data(), small.size()) == static_cast<ssize_t>(small.size());
      ::close(end);
    }
  });
  const Outcome outcome = run_plumb(folder, "plan " + pipe);
  ended = true;
  writer.join();
  INFO(outcome.err);
  CHECK(outcome.status == 0);
}

TEST_CASE("input files are never overwritten") {
  const Folder folder;
  const std::string file = folder.file("small.yaml", small);
  const std::string plan = folder.file("plan.json");
  const std::string timeline = folder.file("timeline.json");
  const std::string other_way = (folder.path / ".." / folder.path.filename() / "small.yaml").string();
  REQUIRE(run_plumb(folder, "plan " + file + " -o " + plan).status == 0);
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + timeline).status == 0);
  refuses(run_plumb(folder, "plan " + file + " -o " + other_way), {"small.yaml", "would be written over"});
  refuses(run_plumb(folder, "simulate " + plan + " -o " + plan), {"plan.json", "would be written over"});
  refuses(run_plumb(folder, "report " + timeline + " -o " + timeline), {"timeline.json", "would be written over"});
  CHECK(plumb::read_file(file) == small);
}

TEST_CASE("diff says what its two files are: a prediction for a run, two predictions, or the two swapped") {
  const Folder folder;
  const std::string predicted = folder.file("predicted.json");
  REQUIRE(run_plumb(folder, "simulate " + folder.file("small.yaml", small) + " --engine path -o " + predicted).status ==
          0);
  const std::string text = plumb::read_file(predicted);
  const std::string run = folder.file("run.json", replaced(text, R"("source":"predicted")", R"("source":"measured")"));

  const std::string twice = run_plumb(folder, "diff " + predicted + " " + predicted).out;
  CHECK_THAT(twice, ContainsSubstring("(predicted too, by path; the first differs by +0.0% from it)"));
  CHECK_THAT(twice, ContainsSubstring("second − first"));
  CHECK(twice.find("measured") == std::string::npos);
  const Json sources = json_of(run_plumb(folder, "diff --json " + predicted + " " + run));
  CHECK(sources["sources"] == Json::array({"predicted", "measured"}));
  CHECK_THAT(run_plumb(folder, "diff " + predicted + " " + run).out, ContainsSubstring("prediction off by +0.0%"));
  refuses(run_plumb(folder, "diff " + run + " " + predicted), {"the first timeline is a measured one"});
}

TEST_CASE("validate ends with how many goals were reached") {
  const Folder folder;
  const std::string published = "validate '" + std::string(PLUMB_SOURCE_DIR) + "/scenarios/published/";
  const std::string missed = published + "megatron-readme-model-parallel.yaml'";
  const Outcome text = run_plumb(folder, missed);
  CHECK(text.status == 0);
  CHECK(text.out.ends_with("\n\n1 table: 0 goals reached, 1 missed, no step back\n"));
  const Json found = json_of(run_plumb(folder, missed + " --json"));
  CHECK(found["goals_reached"] == 0);
  CHECK(found["goals_missed"] == 1);
  CHECK(found["steps_back"] == 0);

  const std::string table =
      plumb::read_file(std::string(PLUMB_SOURCE_DIR) + "/scenarios/published/megatron-readme-model-parallel.yaml");
  const std::string strict = replaced(table, "mean_percent: 12.96", "mean_percent: 1");
  const Outcome worse = run_plumb(folder, "validate " + folder.file("worse.yaml", strict));
  CHECK(worse.status == 1);
  CHECK_THAT(worse.out, ContainsSubstring("1 missed, 1 step back"));

  const std::string states = published + "1910.02054-states.yaml'";
  CHECK_THAT(run_plumb(folder, states).out, ContainsSubstring("120 GB") && ContainsSubstring("1 goal reached"));
  const Json whole = json_of(run_plumb(folder, states + " --json"))["tables"][0]["rows"][0];
  CHECK(whole["measured"] == 120);
  CHECK_FALSE(whole.contains("measured_s"));
}

TEST_CASE("a plan may begin with a byte-order mark") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  REQUIRE(run_plumb(folder, "plan " + folder.file("small.yaml", small) + " -o " + plan).status == 0);
  const std::string marked = folder.file("marked.json", "\xef\xbb\xbf" + plumb::read_file(plan));
  CHECK(run_plumb(folder, "simulate " + marked + " --engine path").status == 0);
}

TEST_CASE("a scenario may be written in JSON, and a plan without its mark is still none") {
  const Folder folder;
  const std::string scenario = R"({
    "model": {"vocabulary": 64, "hidden": 64, "heads": 2, "ffn": 128, "layers": "full/dense*4"},
    "cluster": {"machine": "local-cpu", "ranks": 2},
    "training": {"sequence": 32, "global_batch": 4, "microbatch": 1},
    "layout": {"pipeline": 2}, "schedule": "1f1b", "split": "uniform"})";
  const std::string file = folder.file("small.json", scenario);
  const std::string braces = folder.file("small.yaml", replaced(scenario, "\"model\": {", "model: {"));
  const std::string plan = folder.file("plan.json");
  CHECK(run_plumb(folder, "plan " + file + " -o " + plan).status == 0);
  CHECK(run_plumb(folder, "show " + file).status == 0);
  const Outcome simulated = run_plumb(folder, "simulate " + file + " --engine path");
  CHECK(simulated.status == 0);
  CHECK(run_plumb(folder, "simulate " + braces + " --engine path").out == simulated.out);
  CHECK(run_plumb(folder, "simulate " + plan + " --engine path --against " + file).status == 0);
  const auto simulate = [&](const std::string& content) {
    return run_plumb(folder, "simulate " + folder.file("bad.json", content));
  };
  refuses(simulate(replaced(scenario, "\"split\"", "\"splits\"")), {"bad.json:5:", "did you mean 'split'?"});
  refuses(simulate(replaced(plumb::read_file(plan), "\"format\": \"plumb plan\",", "")),
          {"bad.json", "is not a plan", "plumb plan SCENARIO"});
  refuses(simulate(R"({"model_type": "llama", "layout": 1})"),
          {"bad.json: is not a scenario: it looks like a model", "model: bad.json in a scenario"});
}

TEST_CASE("show and plan remark what is left out of a config.json") {
  const Folder folder;
  const std::string config = folder.file("capped.config.json", R"({"model_type": "llama", "hidden_act": "silu",
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 128, "final_logit_softcapping": 30.0})");
  const std::string file = folder.file("capped.yaml",
                                       "model: capped.config.json\ncluster: {machine: local-cpu, ranks: 2}\n"
                                       "training: {sequence: 32, global_batch: 4}\nsplit: uniform\n");
  const std::string remark = "capped: final_logit_softcapping: left out";
  for (const std::string& command : {"show " + config, "show " + file, "plan " + file + " --engine path"}) {
    const Outcome outcome = run_plumb(folder, command);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring(remark));
  }
  CHECK(json_of(run_plumb(folder, "show " + config + " --json"))["remarks"].size() == 1);
}

TEST_CASE("damaged plans are refused") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  REQUIRE(run_plumb(folder, "plan " + folder.file("small.yaml", small) + " -o " + plan).status == 0);
  const std::string whole = plumb::read_file(plan);
  const auto simulate = [&](const std::string& content) {
    return run_plumb(folder, "simulate " + folder.file("bad.json", content) + " -o " + folder.file("trace.json"));
  };
  refuses(simulate(whole.substr(0, whole.size() / 2)), {"bad.json", "truncated"});
  refuses(simulate(replaced(whole, "\"version\": 6", "\"version\": 1")), {"bad.json", "version 1", "version 6"});
  refuses(simulate(replaced(whole, "0F0 ", "")), {"bad.json", "0F0"});
  CHECK_FALSE(std::filesystem::exists(folder.file("trace.json")));
  refuses(run_plumb(folder, "simulate " + plan + " -o " + folder.file("missing/trace.json")), {"cannot be written"});
}

TEST_CASE("all ranks of a layout are simulated where asked, and a timeline of them is refused") {
  const Folder folder;
  const std::string file =
      folder.file("wide.yaml", R"(model: {vocabulary: 512, hidden: 256, heads: 8, ffn: 1024, layers: "full/dense*4"}
cluster: {machine: dgx-a100, nodes: 2}
training: {sequence: 128, global_batch: 8, microbatch: 1, precision: bf16}
layout: {pipeline: 2, tensor: {degree: 8}}
schedule: 1f1b
)");
  const auto ranks = [&](const std::string& options) {
    const Outcome outcome = run_plumb(folder, "simulate " + file + " --json" + options);
    REQUIRE(outcome.status == 0);
    std::size_t count = 0;
    for (std::size_t at = 0; (at = outcome.out.find("\"rank\":", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  CHECK(ranks("") == 2);
  CHECK(ranks(" --unfold") == 16);
  CHECK(ranks(" --unfold --engine path") == 16);
  CHECK_THAT(run_plumb(folder, "simulate " + file).out, ContainsSubstring("of the step, is collectives inside layers"));
  CHECK_THAT(run_plumb(folder, "simulate " + file + " --json").out, ContainsSubstring("\"traffic\": {") &&
                                                                        ContainsSubstring("\"tensor_bytes\":") &&
                                                                        ContainsSubstring("\"tensor_time_s\":"));
  refuses(run_plumb(folder, "simulate " + file + " --unfold -o " + folder.file("trace.json")),
          {"--unfold", "one rank for each stage"});
  CHECK_FALSE(std::filesystem::exists(folder.file("trace.json")));
}
