// What the program does and says that no process of its own is needed for: ranks as threads, and what is refused.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/timeline/trace/trace.hpp"
#include "exec/device/torch_device.hpp"
#include "tests/catch.hpp"
#include "tests/exec/program_here.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;

TEST_CASE("the reference page of commands is the one that the program prints") {
  // No build writes it: plumb-exec man --markdown > docs/reference/plumb-exec.md
  CHECK(run_here({"man", "--markdown"}).out == read_file(PLUMB_SOURCE_DIR "/docs/reference/plumb-exec.md"));
}

TEST_CASE("data-parallel pipelines run, are checked, and their timeline has all ranks") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  const Plan made = tiny_plan({.schedule = "zb-h1", .tied = true, .data = 2});
  const std::string plan = folder.write("plan.json", to_json(made));
  const Ended ended =
      run_over(transport, folder, {"run", plan, "--steps", "2", "--check", "--json", "-o", folder / "measured.json"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const json result = json::parse(ended.out);
  CHECK(result.at("passed") == true);
  CHECK(result.at("worst_error_ratio").get<double>() <= 1.5);
  CHECK(result.at("layout") == "pp2·dp2");
  CHECK(result.at("ranks").size() == 4);
  CHECK(std::abs(result.at("replay_error_fraction").get<double>()) < 0.5);
  const Timeline timeline = read_timeline(folder / "measured.json");
  CHECK(timeline.layout == made.layout);
  CHECK(timeline.ranks.size() == 4);
  std::set<int> summing;
  for (const Event& event : timeline.steps.front().events) {
    if (event.action.kind == ActionKind::reduce_gradient) summing.insert(event.rank);
  }
  CHECK(summing.size() == 4);
  const std::string deep = folder.write("deep.json", to_json(tiny_plan({.ranks = 4, .microbatches = 8})));
  const Ended compared = run_over(transport, folder, {"compare", plan, deep, "--steps", "2", "--json"});
  INFO(compared.err);
  CHECK(compared.status == 0);
  if (transport == "gloo") return;
  const Ended other = run_over(transport, folder, {"run", plan, "--device", "cuda", "--deterministic"});
  CHECK(other.status == 2);
  CHECK_THAT(other.err, ContainsSubstring("--transport nccl"));
}

TEST_CASE("compare alternates plans and writes their timelines") {
  const TemporaryFolder folder;
  const std::string one = write_slow_plan(folder, 2, 4, "one.json");
  const std::string two = write_slow_plan(folder, 2, 8, "two.json");
  const Ended ended = run_here({"compare", one, two, "--emulate", "--steps", "5", "--json", "-o", folder / ""});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const json result = json::parse(ended.out);
  REQUIRE(result.at("plans").size() == 2);
  REQUIRE(result.at("ratios").size() == 1);
  // A step takes (m + p − 1) · 6 ms at least: 5 and 9 slots.
  std::vector<double> ratios;
  for (std::size_t step = 0; step < 5; ++step) {
    const std::array<double, 2> times{result.at("plans").at(0).at("step_s").at(step),
                                      result.at("plans").at(1).at("step_s").at(step)};
    CHECK(times[0] >= 5 * 6e-3);
    CHECK(times[1] >= 9 * 6e-3);
    ratios.push_back(times[1] / times[0]);
  }
  std::ranges::sort(ratios);
  const double ratio = result.at("ratios").at(0).at("median").get<double>();
  CHECK(ratio == Approx(ratios[2]));
  CHECK(result.at("ratios").at(0).at("low").get<double>() <= ratio);
  CHECK(read_timeline(folder / "one.measured.json").steps.size() == 5);
  CHECK(read_timeline(folder / "two.measured.json").steps.size() == 5);
  const std::string other = write_slow_plan(folder, 1, 4, "other.json");
  CHECK(run_here({"compare", one, other, "--emulate"}).status == 2);
}

// All schedules on threads of this process: test_pipeline and test_schedules.
TEST_CASE("every schedule on 2 processes, and some on 1 and 4 threads, learns the single device's bits") {
  const auto [schedule, transport, ranks] =
      GENERATE(table<std::string, std::string, int>({{"gpipe", "gloo", 2},
                                                     {"1f1b", "gloo", 2},
                                                     {"interleaved-1f1b", "gloo", 2},
                                                     {"zb-h1", "gloo", 2},
                                                     {"gpipe", "local", 1},
                                                     {"1f1b", "local", 4},
                                                     {"zb-h1", "local", 4}}));
  const TemporaryFolder folder;
  const std::string plan =
      folder.write("plan.json", to_json(tiny_plan({.ranks = ranks, .microbatches = 8, .schedule = schedule})));
  const Ended ended = run_over(transport, folder, {"run", plan, "--steps", "1", "--check", "--json"});
  INFO(schedule << " on " << ranks << " ranks over " << transport << ": " << ended.out << ended.err);
  CHECK(ended.status == 0);
  CHECK(json::parse(ended.out).at("bitwise_equal") == true);
}

// Rank 0 evicts three microbatches to rank 3 and has them back: so many bytes come in beside the pipeline's messages.
TEST_CASE("evicted activations come back, between threads and between processes") {
  const TemporaryFolder folder;
  const std::string plan =
      folder.write("plan.json", to_json(tiny_plan({.ranks = 4, .microbatches = 8, .schedule = "bpipe"})));
  std::vector<json> received;
  for (const std::string transport : {"local", "gloo"}) {
    const Ended ended = run_over(transport, folder, {"run", plan, "--steps", "2", "--check", "--json"});
    INFO(transport << ": " << ended.out << ended.err);
    REQUIRE(ended.status == 0);
    const json answer = json::parse(ended.out);
    CHECK(answer.at("bitwise_equal") == true);
    for (const json& rank : answer.at("ranks")) received.push_back(rank.at("received_bytes"));
  }
  REQUIRE(received.size() == 8);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(received[rank] == received[rank + 4]);
  CHECK(received[0] == received[3]);
  CHECK(received[0] > received[1]);
  const Ended emulated = run_here({"run", plan, "--emulate", "--steps", "1"});
  INFO(emulated.err);
  CHECK(emulated.status == 0);
}

TEST_CASE("where ranks only wait, their groups move nothing, and what they receive is not told by axis") {
  const int tensor = GENERATE(1, 2);
  const TemporaryFolder folder;
  Plan divided = tiny_plan({.data = 2});
  divided.layout.tensor.degree = tensor;
  divided.cluster.ranks = 4 * tensor;
  divided.costs = predicted_costs(divided);
  const std::string plan = folder.write("plan.json", to_json(divided));
  const Ended emulated = run_here({"run", plan, "--emulate", "--steps", "1", "--json"});
  INFO(emulated.err);
  REQUIRE(emulated.status == 0);
  const json waited = json::parse(emulated.out).at("ranks");
  CHECK(waited.size() == static_cast<std::size_t>(4 * tensor));
  for (const json& rank : waited) {
    CHECK_FALSE(rank.contains("traffic"));
    CHECK(rank.at("received_bytes") == 4 * divided.costs.boundary_bytes.value);  // a message for each microbatch
  }
}

TEST_CASE("refusals name their cause, with status 2 and no output") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const std::string cut = folder.write("cut.json", content(plan).substr(0, 200));
  const std::string short_text = folder.write("short.txt", "abc");
  const std::string output = folder / "measured.json";
  struct Case {
    std::vector<std::string> words;
    std::string named;
  };
  std::vector<Case> cases{
      {{"run", plan, "--device", "cude"}, "did you mean 'cuda'"},
      {{"run", plan, "--device", "cuda", "--emulate"}, "--emulate: waits on the host"},
      {{"run", plan, "--device", "cuda", "--check"}, "add --deterministic"},
      {{"run", plan, "--device", "cuda", "--transport", "gloo"}, "'gloo' moves the host's memory alone"},
      {{"run", plan, "--transport", "nccl"}, "'nccl' moves the memory of GPUs, and --device is cpu"},
      {{"run", plan, "--transport", "globo"}, "did you mean 'gloo'"},
      {{"run", plan, "--steps", "0"}, "--steps"},
      {{"run", plan, "--deadline", "-1"}, "--deadline"},
      {{"run", plan, "--deadline", "nan"}, "--deadline: expected a number above 0, found 'nan'"},
      {{"run", plan, "--emulate", "--emulate-bytes", "-1"}, "--emulate-bytes: expected a whole number from 0"},
      {{"run", plan, "--emulate-bytes", "8"}, "only with --emulate"},
      {{"run", folder.write("order.csv", "0F0,0B0\n")}, "schedule: {file: "},
      {{"run", plan, "--emulate", "--check"}, "--check"},
      {{"run", plan, "--inject", "swapped-receive"}, "rank 1"},
      {{"run", plan, "--data", short_text}, "short.txt"},
      {{"run", plan, "--data", folder / "missing.txt"}, "missing.txt"},
      {{"run", cut}, "cut.json"},
      {{"run", plan, "--stepz", "2"}, "did you mean '--steps'"},
      {{"compare", plan}, "two plans"},
      {{"calibrate", folder / "missing.yaml"}, "missing.yaml"},
      {{"calibrate", std::string(PLUMB_SOURCE_DIR) + "/scenarios/hybrid-4-ranks.yaml", "--microbatch", "3"},
       "it has 1, 2"},
      {{"bench", "--transport", "gloo"}, "cannot calibrate 'gloo' on cuda"},
  };
  if (accelerator_count() == 0) {
    cases.push_back({{"run", plan, "--device", "cuda"}, "--device: "});
    cases.push_back({{"bench"}, "--device: "});
    cases.push_back(
        {{"calibrate", std::string(PLUMB_SOURCE_DIR) + "/scenarios/demo.yaml", "--device", "cuda"}, "--device: "});
  }
  for (const Case& refused : cases) {
    std::vector<std::string> words = refused.words;
    if (words.front() == "run") words.insert(words.end(), {"-o", output});
    const Ended ended = run_here(words);
    INFO(refused.named << "\n" << ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(refused.named));
    CHECK(ended.out.empty());
    CHECK_FALSE(std::filesystem::exists(output));
  }
  CHECK(run_here({"run", plan, "-o", folder / "no/such/folder/x.json"}).status == 2);
  const Ended help = run_here({"run", "--help"});
  CHECK(help.status == 0);
  CHECK_THAT(help.out, ContainsSubstring("Example:"));
}

TEST_CASE("the program prints its reference page, its features and completions") {
  const Ended page = run_here({"man", "--markdown"});
  CHECK(page.status == 0);
  CHECK(page.out.starts_with("# Commands of plumb-exec\n"));
  CHECK_THAT(page.out, ContainsSubstring("## plumb-exec run\n"));
  const Ended version = run_here({"--version"});
  CHECK(version.out.starts_with("plumb-exec 0."));
  for (const std::string feature : {"LibTorch: ", "gloo: on", "CUDA kernels: ", "NCCL: "}) {
    CHECK_THAT(version.out, ContainsSubstring(feature));
  }
  CHECK_THAT(run_here({"__complete", "run", "--transport", "g"}).out, ContainsSubstring("gloo\t"));
}

TEST_CASE("no output goes over an input or over another output") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const std::string text = folder.write("text.txt", std::string(100000, 'a'));
  for (const auto& [words, problem] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--export", plan}, "is read and would be written over"},
           {{"--data", text, "--export", text}, "is read and would be written over"},
           {{"-o", folder / "a", "--export", folder / "a"}, "is written twice: -o and --export name it"},
           {{"-o", folder / "a", "--log", folder / "./a"}, "is written twice: -o and --log name it"},
           {{"--log", folder / "a", "--export", folder / "a"}, "is written twice: --log and --export name it"}}) {
    std::vector<std::string> all{"run", plan, "--steps", "1"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run_here(all);
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(problem));
  }
  CHECK(content(text) == std::string(100000, 'a'));
}

TEST_CASE("a plan for GPUs that runs on the host says so, unless it only waits") {
  const TemporaryFolder folder;
  Plan of_gpus = tiny_plan({.shallow = true});
  const std::string machine = std::string(PLUMB_SOURCE_DIR) + "/scenarios/machines/dgx-h100.yaml";
  of_gpus.cluster.machine = read_machine(YamlValue::load(machine), ElementType::fp32);
  of_gpus.cluster.machine.devices = of_gpus.cluster.machine.nics = 2;  // as its costs have them
  of_gpus.costs.cores_per_machine = 0;
  const std::string plan = folder.write("gpus.json", to_json(of_gpus));
  const std::string text = "a plan for dgx-h100 runs on this host's processors";
  const Ended ended = run_here({"run", plan, "--steps", "1", "--warm-up", "0"});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.err, ContainsSubstring(text));
  CHECK(run_here({"run", plan, "--steps", "1", "--emulate"}).err.find(text) == std::string::npos);
  const std::string own = folder.write("host.json", to_json(tiny_plan({.shallow = true})));
  CHECK(run_here({"run", own, "--steps", "1"}).err.find("runs on this host") == std::string::npos);
}

// 1 PB a rank, and blocks of a million by four million.
TEST_CASE("plans larger than the host's memory are refused in one line before allocation") {
  const TemporaryFolder folder;
  Plan large = tiny_plan({});
  large.cluster.machine.name = "a larger machine";
  for (ComputeCost& cost : large.costs.stages) cost.parameter_bytes = {1'000'000'000'000'000};
  const std::string plan = folder.write("large.json", to_json(large));
  for (const std::string transport : {"local", "gloo"}) {
    const Ended ended = run_here({"run", plan, "--transport", transport});
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("made for a larger machine") &&
                              ContainsSubstring("its 2 ranks here take") && ContainsSubstring("on which it runs, has"));
  }
  CHECK(run_here({"run", plan, "--emulate", "--steps", "1"}).status == 0);
  const std::string scenario = folder.write(
      "wide.yaml",
      "model: {name: wide, vocabulary: 256, hidden: 1048576, heads: 8192, ffn: 4194304, layers: \"full/dense*2\"}\n"
      "cluster: {machine: dgx-h100, ranks: 2}\n"
      "training: {sequence: 16, global_batch: 2, microbatch: 1, precision: bf16}\nlayout: {pipeline: 2}\n"
      "schedule: 1f1b\n");
  const Ended ended = run_here({"calibrate", scenario});
  INFO(ended.err);
  CHECK(ended.status == 2);
  CHECK_THAT(ended.err, ContainsSubstring("made for dgx-h100") && ContainsSubstring("on which it runs, has"));
}

TEST_CASE("calibrate measures the first of several microbatches, or the one that is named, and says so") {
  const TemporaryFolder folder;
  const std::string scenario =
      folder.write("two-sizes.yaml",
                   "model: {name: t, vocabulary: 256, hidden: 32, heads: 2, ffn: 64, layers: full/dense*2}\n"
                   "cluster: {machine: local-cpu, ranks: 2}\n"
                   "training: {sequence: 16, global_batch: 8, microbatch: [2, 4]}\n"
                   "layout: {pipeline: 2}\n");
  const Ended first = run_here({"calibrate", scenario, "--rounds", "1"});
  CHECK(first.status == 0);
  CHECK_THAT(first.err, ContainsSubstring("measures a microbatch of 2, the first of the scenario's 2"));
  CHECK_THAT(first.out, ContainsSubstring("microbatch: 2"));
  const Ended named = run_here({"calibrate", scenario, "--rounds", "1", "--microbatch", "4"});
  CHECK(named.status == 0);
  CHECK_THAT(named.err, !ContainsSubstring("note: measures"));
  CHECK_THAT(named.out, ContainsSubstring("microbatch: 4"));
}

TEST_CASE("Ctrl-C during a calibration ends with status 3 and one line, and writes no profile") {
  const TemporaryFolder folder;
  const std::string profile = folder / "profile.yaml";
  const auto handler = [] {
    struct sigaction now = {};
    ::sigaction(SIGINT, nullptr, &now);
    return now.sa_handler;
  };
  const auto before = handler();
  auto calibrating = std::async(std::launch::async, [&] {
    return run_here(
        {"calibrate", PLUMB_SOURCE_DIR "/scenarios/hybrid-4-ranks.yaml", "--rounds", "1000", "-o", profile});
  });
  wait_until([&] { return handler() != before; });
  ::kill(::getpid(), SIGINT);
  const Ended ended = calibrating.get();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && ContainsSubstring(" of 1000 rounds"));
  CHECK(ended.out.empty());
  CHECK_FALSE(std::filesystem::exists(profile));
  CHECK(handler() == before);
}

TEST_CASE("a wrong schedule that is forced does not pass the check") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.schedule = "gpipe"})));
  const Ended swapped =
      run_here({"run", plan, "--inject", "swapped-receive", "--force-unchecked", "--check", "--json", "--steps", "1"});
  INFO(swapped.err);
  CHECK(swapped.status == 1);
  CHECK(json::parse(swapped.out).at("passed") == false);
  const Ended dropped =
      run_here({"run", plan, "--inject", "dropped-weight-gradient", "--force-unchecked", "--check", "--steps", "1"});
  CHECK(dropped.status == 3);
  CHECK_THAT(dropped.err, ContainsSubstring("rank 1, after warm-up step 1"));
}

TEST_CASE("a loss that is no number is blamed on alpha where adapters are multiplied by too much") {
  const TemporaryFolder folder;
  Plan plan = tiny_plan({.more_of_training = ", lora: {rank: 2}"});
  plan.training.lora->alpha = 1e300;
  plan.training.learning_rate = 0.1;
  const Ended ended = run_here({"run", folder.write("plan.json", to_json(plan)), "--steps", "4"});
  INFO(ended.err);
  CHECK_THAT(ended.out, ContainsSubstring("lower training.lora.alpha, which is 1e+300 at rank 2") &&
                            !ContainsSubstring("learning_rate"));
}
