// The program as its users meet it: options, exit statuses, files, and what happens when a rank dies.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "common/base/error.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/timeline/trace/trace.hpp"
#include "exec/device/torch_device.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

void wait_for_ranks(const Running& running, int ranks) {
  wait_until([&] { return running.rank_process(ranks - 1) != 0; });
  std::this_thread::sleep_for(2s);  // loads LibTorch, connects, is in the middle of its steps
}

}  // namespace

TEST_CASE("run trains, checks and writes a timeline, on threads and on processes") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const Ended ended = run(folder, {"run", plan, "--transport", transport, "--steps", "2", "--check", "--json", "-o",
                                   folder / "measured.json"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const json result = json::parse(ended.out);
  CHECK(result.at("step_s").size() == 2);
  CHECK(result.at("loss").size() == 2);
  CHECK(result.at("warm_up_s").size() == 1);
  // Untrained: about ln 256 = 5.5 per token; AdamW moved it.
  CHECK(result.at("warm_up_loss").at(0).get<double>() == Approx(5.55).margin(0.3));
  CHECK(result.at("loss").at(1) != result.at("warm_up_loss").at(0));
  CHECK(std::abs(result.at("replay_error_fraction").get<double>()) < 0.5);
  CHECK(result.at("passed") == true);
  CHECK(result.at("bitwise_equal") == true);
  REQUIRE(result.at("ranks").size() == 2);
  // 4 microbatches × 16 tokens × 16 values × 4 bytes each way.
  CHECK(result.at("ranks").at(0).at("received_bytes") == 4096);
  CHECK(result.at("ranks").at(1).at("received_bytes") == 4096);
  CHECK(result.at("ranks").at(1).at("peak_bytes").get<std::int64_t>() > 4096);
  const Timeline timeline = read_timeline(folder / "measured.json");
  CHECK(timeline.source == TimelineSource::measured);
  CHECK(timeline.steps.size() == 2);
  CHECK(timeline.ranks.size() == 2);
}

TEST_CASE("data-parallel pipelines run, are checked, and their timeline has all ranks") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  const Plan made = tiny_plan({.schedule = "zb-h1", .tied = true, .data = 2});
  const std::string plan = folder.write("plan.json", to_json(made));
  const Ended ended = run(folder, {"run", plan, "--transport", transport, "--steps", "2", "--check", "--json", "-o",
                                   folder / "measured.json"});
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
  const Ended compared = run(folder, {"compare", plan, deep, "--transport", transport, "--steps", "2", "--json"});
  INFO(compared.err);
  CHECK(compared.status == 0);
  if (transport == "gloo") return;
  const Ended other = run(folder, {"run", plan, "--transport", transport, "--device", "cuda", "--deterministic"});
  CHECK(other.status == 2);
  CHECK_THAT(other.err, ContainsSubstring("--transport nccl"));
}

TEST_CASE("compare alternates plans and writes their timelines") {
  const TemporaryFolder folder;
  const std::string one = write_slow_plan(folder, 2, 4, "one.json");
  const std::string two = write_slow_plan(folder, 2, 8, "two.json");
  const Ended ended = run(folder, {"compare", one, two, "--emulate", "--steps", "5", "--json", "-o", folder / ""});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const json result = json::parse(ended.out);
  REQUIRE(result.at("plans").size() == 2);
  REQUIRE(result.at("ratios").size() == 1);
  // (m + p − 1) · 6 ms: 5 against 9 slots.
  const double ratio = result.at("ratios").at(0).at("median").get<double>();
  CHECK(ratio > 1.5);
  CHECK(ratio < 2.1);
  CHECK(result.at("ratios").at(0).at("low").get<double>() <= ratio);
  CHECK(read_timeline(folder / "one.measured.json").steps.size() == 5);
  CHECK(read_timeline(folder / "two.measured.json").steps.size() == 5);
  const std::string other = write_slow_plan(folder, 1, 4, "other.json");
  CHECK(run(folder, {"compare", one, other, "--emulate"}).status == 2);
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
  const Ended ended = run(folder, {"run", plan, "--transport", transport, "--steps", "1", "--check", "--json"});
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
    const Ended ended = run(folder, {"run", plan, "--transport", transport, "--steps", "2", "--check", "--json"});
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
  const Ended emulated = run(folder, {"run", plan, "--emulate", "--steps", "1"});
  INFO(emulated.err);
  CHECK(emulated.status == 0);
}

TEST_CASE("where ranks only wait, tensor groups move nothing, and what they receive is not told by axis") {
  const TemporaryFolder folder;
  Plan divided = tiny_plan({.data = 2});
  divided.layout.tensor.degree = 2;
  divided.cluster.ranks = 8;
  divided.costs = predicted_costs(divided);
  const std::string plan = folder.write("plan.json", to_json(divided));
  const Ended emulated = run(folder, {"run", plan, "--emulate", "--steps", "1", "--json"});
  INFO(emulated.err);
  REQUIRE(emulated.status == 0);
  const json waited = json::parse(emulated.out).at("ranks");
  CHECK(waited.size() == 8);
  CHECK_FALSE(waited.at(0).contains("traffic"));
}

// GPipe sends all microbatches before the first comes back: what the peer has must be let go, over either transport.
TEST_CASE("processes peak at the memory at which threads do") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.microbatches = 16, .schedule = "gpipe"})));
  const auto peaks = [&](const std::string& transport) {
    const Ended ended = run(folder, {"run", plan, "--transport", transport, "--steps", "2", "--json"});
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    const json answer = json::parse(ended.out);
    std::vector<double> bytes;
    for (const json& rank : answer.at("ranks")) bytes.push_back(rank.at("peak_bytes").get<double>());
    return bytes;
  };
  const std::vector<double> threads = peaks("local");
  const std::vector<double> processes = peaks("gloo");
  REQUIRE(threads.size() == 2);
  REQUIRE(processes.size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(processes[rank] == Approx(threads[rank]).epsilon(0.05));
}

TEST_CASE("a rank that is killed is named with what it did, and all others end") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 3, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_for_ranks(running, 3);
  const pid_t victim = running.rank_process(1);
  const pid_t other = running.rank_process(2);
  REQUIRE(victim != 0);
  ::kill(victim, SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = running.wait();
  CHECK(std::chrono::steady_clock::now() - start < 15s);
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, (ContainsSubstring("rank 1, step ") || ContainsSubstring("rank 1, before step")) &&
                            ContainsSubstring("killed by signal 9") && ContainsSubstring("where each rank stood"));
  CHECK_THAT(ended.err, ContainsSubstring("rank 2: step") || ContainsSubstring("rank 2: before step"));
  CHECK(::kill(other, 0) != 0);
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

TEST_CASE("a rank that is stopped is named within seconds") {
  const int stopped = 1;
  const TemporaryFolder folder;
  Running running(folder,
                  {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps", "100000"});
  wait_for_ranks(running, 2);
  ::kill(running.rank_process(stopped), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = running.wait();
  CHECK(std::chrono::steady_clock::now() - start < 25s);
  INFO(ended.err);
  CHECK(ended.status == 3);
  // It may stop within an action or between two steps.
  const std::string rank = "rank " + std::to_string(stopped);
  CHECK_THAT(ended.err, (ContainsSubstring(rank + ", step ") || ContainsSubstring(rank + ", before step ")) &&
                            ContainsSubstring("gives no sign of life"));
}

TEST_CASE("Ctrl-C stops cleanly, with status 3, and the whole steps until then are printed and written") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", transport, "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return running.told().find("tokens/s") != std::string::npos; });
  ::kill(running.pid(), SIGINT);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && ContainsSubstring("whole steps of 100000"));
  CHECK_THAT(ended.err, ContainsSubstring("step ") && ContainsSubstring(" tokens/s"));
  CHECK_THAT(ended.out, ContainsSubstring("median step"));
  CHECK_FALSE(read_timeline(folder / "measured.json").steps.empty());
}

TEST_CASE("Ctrl-C while ranks still start is a Ctrl-C, not a rank that was killed") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return running.rank_process(0) != 0 && running.rank_process(1) != 0; });
  // A terminal tells the whole group.
  for (const pid_t process : {running.rank_process(0), running.rank_process(1), running.pid()}) ::kill(process, SIGINT);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = running.wait();
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && !ContainsSubstring("killed by"));
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

TEST_CASE("a rank that is killed before the run is named so") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return running.rank_process(1) != 0; });
  ::kill(running.rank_process(1), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1, before the run: killed by signal 9"));
}

TEST_CASE("ranks that others have started find each other, and a port in use is named") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const auto variables = [](int rank, int port) {
    return std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + std::to_string(port)};
  };
  const std::vector<std::string> words{"run", plan, "--emulate", "--transport", "gloo", "--steps", "2", "--json"};
  const int free_port = RunStore::host(0)->port();
  Running zero(folder, words, variables(0, free_port));
  Running one(folder, words, variables(1, free_port));
  const Ended first = zero.wait();
  const Ended second = one.wait();
  INFO(first.err << second.err);
  CHECK(first.status == 0);
  CHECK(second.status == 0);
  CHECK(json::parse(first.out).at("step_s").size() == 2);
  CHECK(second.out.empty());

  const auto taken = RunStore::host(0);
  const Ended refused = run(folder, words, variables(0, taken->port()));
  CHECK(refused.status == 3);
  CHECK_THAT(refused.err,
             ContainsSubstring("port " + std::to_string(taken->port())) && ContainsSubstring("MASTER_PORT"));
}

TEST_CASE("what is refused is refused by its name, with status 2 and no output") {
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
    const Ended ended = run(folder, words);
    INFO(refused.named << "\n" << ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(refused.named));
    CHECK(ended.out.empty());
    CHECK_FALSE(std::filesystem::exists(output));
  }
  CHECK(run(folder, {"run", plan, "-o", folder / "no/such/folder/x.json"}).status == 2);
  const Ended help = run(folder, {"run", "--help"});
  CHECK(help.status == 0);
  CHECK_THAT(help.out, ContainsSubstring("Example:"));
}

TEST_CASE("calibrate measures the first of several microbatches, or the one that is named, and says so") {
  const TemporaryFolder folder;
  const std::string scenario =
      folder.write("two-sizes.yaml",
                   "model: {name: t, vocabulary: 256, hidden: 32, heads: 2, ffn: 64, layers: full/dense*2}\n"
                   "cluster: {machine: local-cpu, ranks: 2}\n"
                   "training: {sequence: 16, global_batch: 8, microbatch: [2, 4]}\n"
                   "layout: {pipeline: 2}\n");
  const Ended first = run(folder, {"calibrate", scenario, "--rounds", "1"});
  CHECK(first.status == 0);
  CHECK_THAT(first.err, ContainsSubstring("measures a microbatch of 2, the first of the scenario's 2"));
  CHECK_THAT(first.out, ContainsSubstring("microbatch: 2"));
  const Ended named = run(folder, {"calibrate", scenario, "--rounds", "1", "--microbatch", "4"});
  CHECK(named.status == 0);
  CHECK_THAT(named.err, !ContainsSubstring("note: measures"));
  CHECK_THAT(named.out, ContainsSubstring("microbatch: 4"));
}

// Where there is no GPU: the launcher says why, once; ranks that others have started say it each, at once and alike.
TEST_CASE("over NCCL without a GPU every rank ends with one line, a hint and status 2, and none hangs") {
  if (accelerator_count() > 0) return;
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const std::vector<std::string> words{"run", plan, "--device", "cuda", "--transport", "nccl"};
  const auto require_refused = [](const Ended& ended) {
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out.empty());
    CHECK_THAT(ended.err, ContainsSubstring("--device: ") || ContainsSubstring("--transport: 'nccl' "));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= 2);
  };
  require_refused(run(folder, words));
  const auto start = std::chrono::steady_clock::now();
  const int port = RunStore::host(0)->port();
  const auto variables = [port](int rank) {
    return std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "LOCAL_RANK=0",
                                    "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)};
  };
  Running zero(folder, words, variables(0));
  Running one(folder, words, variables(1));
  const Ended first = zero.wait();
  const Ended second = one.wait();
  CHECK(std::chrono::steady_clock::now() - start < 40s);
  require_refused(first);
  require_refused(second);
  CHECK(first.err == second.err);
}

TEST_CASE("a wrong schedule that is forced does not pass the check") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.schedule = "gpipe"})));
  const Ended swapped = run(
      folder, {"run", plan, "--inject", "swapped-receive", "--force-unchecked", "--check", "--json", "--steps", "1"});
  INFO(swapped.err);
  CHECK(swapped.status == 1);
  CHECK(json::parse(swapped.out).at("passed") == false);
  const Ended dropped =
      run(folder, {"run", plan, "--inject", "dropped-weight-gradient", "--force-unchecked", "--check", "--steps", "1"});
  CHECK(dropped.status == 3);
  CHECK_THAT(dropped.err, ContainsSubstring("rank 1, after step 0"));
}
