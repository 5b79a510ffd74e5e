// The program as its users meet it: options, exit statuses, files, and what happens when a rank dies.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/timeline/trace/trace.hpp"
#include "exec/device/torch_device.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;

namespace {

// Of the environment with which a process was started; empty: it has none of this name.
std::string variable_of(pid_t process, const std::string& name) {
  std::istringstream variables(content("/proc/" + std::to_string(process) + "/environ"));
  for (std::string line; std::getline(variables, line, '\0');) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

// Until each has said in the run's store that it is behind its first step. What one does is said as PLAN STEP ACTION.
void wait_for_steps(const Running& running, int ranks) {
  wait_until([&] { return running.rank_process(ranks - 1) != 0; });
  const std::string port = variable_of(running.rank_process(0), "MASTER_PORT");
  REQUIRE_FALSE(port.empty());
  const auto store = RunStore::join("127.0.0.1", std::stoi(port), {60});
  for (int rank = 0; rank < ranks; ++rank) {
    wait_until([&] {
      std::istringstream said(store->said(rank));
      int step = 0;
      for (std::string count, plan; said >> count >> plan >> step;) return step > 0;
      return false;
    });
  }
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

TEST_CASE("processes that divide each stage among them train, and pass the check") {
  const auto wanted =
      GENERATE(TinyPlan{.ranks = 1, .microbatches = 2, .tensor = 4, .sequence_parallel = true, .heads = 4},
               TinyPlan{.schedule = "zb-h1", .shallow = true, .tensor = 2});
  const TemporaryFolder folder;
  const Plan made = tiny_plan(wanted);
  const std::string plan = folder.write("plan.json", to_json(made));
  const Ended ended = run(folder, {"run", plan, "--transport", "gloo", "--steps", "2", "--check", "--json"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const json result = json::parse(ended.out);
  CHECK(result.at("passed") == true);
  CHECK(result.at("layout") == describe(made.layout));
  REQUIRE(result.at("ranks").size() == 4);
  for (const json& rank : result.at("ranks")) CHECK(rank.at("traffic").at("tensor_bytes") > 0);
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

// The launcher sees it and tells the others: whoever waited for a message's deadline would wait an hour.
TEST_CASE("a rank that is killed is named with what it did, and all others end") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 3, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "--deadline", "3600", "-o", folder / "measured.json"});
  wait_for_steps(running, 3);
  const pid_t victim = running.rank_process(1);
  const pid_t other = running.rank_process(2);
  REQUIRE(victim != 0);
  ::kill(victim, SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1, ") && ContainsSubstring("step ") &&
                            ContainsSubstring("killed by signal 9") && ContainsSubstring("where each rank stood"));
  CHECK_THAT(ended.err, ContainsSubstring("rank 2: ") && !ContainsSubstring("before it joined"));
  CHECK(::kill(other, 0) != 0);
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

// The launcher notices it, long before the deadline of a message.
TEST_CASE("a rank that is stopped is named after five seconds, with what it was doing") {
  const int stopped = 1;
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "--deadline", "3600"});
  wait_for_steps(running, 2);
  ::kill(running.rank_process(stopped), SIGSTOP);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  // It may stop within an action or between two steps.
  const std::string rank = "rank " + std::to_string(stopped);
  CHECK_THAT(ended.err, ContainsSubstring(rank + ", ") && ContainsSubstring("step ") &&
                            ContainsSubstring("stopped by signal 19 (SIGSTOP), and has not gone on for 5."));
}

TEST_CASE("a rank that is stopped as soon as it is there is named within its deadline") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "--deadline", "2", "-o", folder / "measured.json"});
  wait_until([&] { return running.rank_process(1) != 0; });
  ::kill(running.rank_process(1), SIGSTOP);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1, before it joined the run: stopped by signal 19 (SIGSTOP)") &&
                            ContainsSubstring("where each rank stood"));
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

// The constructors of LibTorch, which run before main, take ten times as long as what comes before them.
TEST_CASE("a signal that comes before main ends the program with words and status 3") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  const auto catches = [&] {
    std::istringstream lines(content("/proc/" + std::to_string(running.pid()) + "/status"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("SigCgt:")) return ((std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1)) & 1U) != 0;
    }
    return false;
  };
  wait_until(catches);
  ::kill(running.pid(), signal);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err,
             ContainsSubstring(signal == SIGINT ? "plumb-exec: interrupted (SIGINT)" : "told to end (SIGTERM)") &&
                 ContainsSubstring("no rank had started"));
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

TEST_CASE("Ctrl-C stops cleanly, with status 3, and the whole steps until then are printed and written") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", transport, "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return ("\n" + running.told()).find("\nstep ") != std::string::npos; });  // behind the warm-up
  ::kill(running.pid(), SIGINT);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && ContainsSubstring("whole steps of 100000"));
  CHECK_THAT(ended.err,
             ContainsSubstring("step ") && ContainsSubstring("s on rank 1, ") && ContainsSubstring(" tokens/s"));
  CHECK_THAT(ended.out, ContainsSubstring("median step"));
  CHECK_FALSE(read_timeline(folder / "measured.json").steps.empty());
}

// The check takes several times as long as it takes to see that the ranks have ended, and for a signal to be seen.
TEST_CASE("Ctrl-C while a single device checks the run ends with status 3, and the run's results are there") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.microbatches = 256})));
  Running running(folder, {"run", plan, "--transport", transport, "--warm-up", "0", "--steps", "1", "--check", "-o",
                           folder / "measured.json"});
  const bool threads = transport == "local";
  const auto works = [&](int rank) {
    return threads ? running.has_thread("rank " + std::to_string(rank)) : running.rank_process(rank) != 0;
  };
  wait_until([&] { return works(1); });
  wait_until([&] { return !works(1) && !(threads && works(0)); });
  ::kill(running.pid(), SIGINT);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err,
             ContainsSubstring("plumb-exec: interrupted (SIGINT)") && ContainsSubstring("a single device checked"));
  CHECK(ended.err.find("interrupted") == ended.err.rfind("interrupted"));
  CHECK_THAT(ended.out, ContainsSubstring("median step") && !ContainsSubstring("check:"));
  CHECK(read_timeline(folder / "measured.json").steps.size() == 1);
}

// They hear of the end through the store first, and of the signal while they leave there what they have.
TEST_CASE("an interrupted run's results are there though its ranks get one signal after the other") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return ("\n" + running.told()).find("\nstep ") != std::string::npos; });
  const std::array ranks{running.rank_process(0), running.rank_process(1)};
  ::kill(running.pid(), SIGINT);
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
       std::chrono::steady_clock::now() < end;) {
    for (const int rank : {0, 1}) {
      if (running.rank_process(rank) == ranks[static_cast<std::size_t>(rank)]) {
        ::kill(ranks[static_cast<std::size_t>(rank)], SIGTERM);
      }
    }
  }
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.out, ContainsSubstring("median step"));
}

TEST_CASE("Ctrl-C while ranks still start is a Ctrl-C, not a rank that was killed") {
  const TemporaryFolder folder;
  // Had they begun meanwhile, they would be warming up: there is nothing to write.
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--warm-up",
                           "100000", "--deadline", "3600", "-o", folder / "measured.json"});
  wait_until([&] { return running.rank_process(0) != 0 && running.rank_process(1) != 0; });
  // A terminal tells the whole group.
  for (const pid_t process : {running.rank_process(0), running.rank_process(1), running.pid()}) ::kill(process, SIGINT);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && !ContainsSubstring("killed by"));
  CHECK_FALSE(std::filesystem::exists(folder / "measured.json"));
}

TEST_CASE("a rank that is killed before it joins the run is named so") {
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", "gloo", "--steps",
                           "100000", "-o", folder / "measured.json"});
  wait_until([&] { return running.rank_process(1) != 0; });
  ::kill(running.rank_process(1), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1, before it joined the run: killed by signal 9"));
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

TEST_CASE("the program refuses a wrong option and a file that is cut, with status 2 and no output") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const std::string cut = folder.write("cut.json", content(plan).substr(0, 200));
  const std::string output = folder / "measured.json";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"run", plan, "--device", "cude", "-o", output}, "did you mean 'cuda'"},
      {{"run", cut, "-o", output}, "cut.json"}};
  for (const auto& [words, named] : cases) {
    const Ended ended = run(folder, words);
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(named));
    CHECK(ended.out.empty());
    CHECK_FALSE(std::filesystem::exists(output));
  }
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
  const int port = RunStore::host(0)->port();
  const auto variables = [port](int rank) {
    return std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "LOCAL_RANK=0",
                                    "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)};
  };
  Running zero(folder, words, variables(0));
  Running one(folder, words, variables(1));
  const Ended first = zero.wait();
  const Ended second = one.wait();
  require_refused(first);
  require_refused(second);
  CHECK(first.err == second.err);
}
