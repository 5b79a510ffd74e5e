// Ranks that someone else has started, and files that a run would write over: what the program says.
#include <netdb.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "exec/transport/gloo/run_store.hpp"
#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Where a rank says that it stands: "COUNT PLAN STEP ACTION".
std::int64_t step_of(RunStore& store, int rank) {
  std::istringstream said(store.said(rank));
  std::int64_t step = 0;
  for (int word = 0; word < 3; ++word) said >> step;
  return said ? step : 0;
}

}  // namespace

TEST_CASE("the process that hosts the store is stopped: the others say so and end, and LibTorch's log is not theirs") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 16);
  const int port = RunStore::host(0, RunStore::Reach::this_host)->port();
  const auto rank = [&](int number) {
    return std::make_unique<Running>(
        folder, std::vector<std::string>{"run", plan, "--emulate", "--steps", "100000"},
        std::vector<std::string>{"RANK=" + std::to_string(number), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(port)});
  };
  const auto hosting = rank(0);
  const auto other = rank(1);
  {
    const auto store = RunStore::join("127.0.0.1", port, {20}, 0);
    wait_until([&] { return step_of(*store, 0) > 0 && step_of(*store, 1) > 0; });
  }
  ::kill(hosting->pid(), SIGSTOP);
  const Ended ended = other->wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("the process that hosts the run's store gives no sign of life") &&
                            ContainsSubstring("it is rank 0, or what has started the ranks"));
  CHECK_THAT(ended.err, !ContainsSubstring("c10d"));
}

TEST_CASE("a host that nobody knows is said at once") {
  const TemporaryFolder folder;
  addrinfo* found = nullptr;
  if (::getaddrinfo("no.such.host.invalid", nullptr, nullptr, &found) != EAI_NONAME) return;  // none here can tell
  const Ended ended = run(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate"},
                          {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=no.such.host.invalid", "MASTER_PORT=29613"});
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("there is no host 'no.such.host.invalid'"));
}

TEST_CASE("calibrate and bench are not for several processes") {
  const TemporaryFolder folder;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"calibrate", "scenario.yaml"}, {"bench"}}) {
    const Ended ended = run(folder, words, {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29615"});
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("torchrun has started 2 processes"));
  }
}

TEST_CASE("a variable left over from another run's launcher is named") {
  const TemporaryFolder folder;
  const Ended ended = run(folder, {"run", write_slow_plan(folder, 2, 4), "--emulate"}, {"PLUMB_LAUNCHER=1"});
  CHECK(ended.status == 2);
  CHECK_THAT(ended.err, ContainsSubstring("PLUMB_LAUNCHER: names process 1 as this rank's launcher") &&
                            ContainsSubstring("unset PLUMB_LAUNCHER"));
}

TEST_CASE("ranks with other transports or devices are named, with status 2 on each") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const int port = RunStore::host(0)->port();
  std::vector<std::unique_ptr<Running>> ranks;
  for (const std::string device : {"cpu", "cuda"}) {
    ranks.push_back(std::make_unique<Running>(
        folder, std::vector<std::string>{"run", plan, "--device", device},
        std::vector<std::string>{"RANK=" + std::to_string(ranks.size()), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(port)}));
  }
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait();
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("rank 1 was started with --device cuda --transport nccl, rank 0 with "
                                            "--device cpu --transport gloo"));
  }
}

// Only rank 0 writes files: the others have nothing to look at, and would wait for it.
TEST_CASE("ranks are told what the one that writes refuses, and refuse by themselves what each can see") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const auto all = [&](const std::vector<std::string>& more) {
    const int port = RunStore::host(0)->port();
    std::vector<std::unique_ptr<Running>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::string> words{"run", plan};
      words.insert(words.end(), more.begin(), more.end());
      ranks.push_back(std::make_unique<Running>(
          folder, words,
          std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=" + std::to_string(port)}));
    }
    std::vector<Ended> ended;
    for (const auto& rank : ranks) ended.push_back(rank->wait());
    return ended;
  };
  for (const Ended& ended : all({"--log", folder / "missing/log.jsonl"})) {
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("missing/log.jsonl: cannot be written: its folder does not exist"));
  }
  for (const Ended& ended : all({"--export", folder / "x", "--export-names", "hugging-face"})) {
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("was read from no config.json"));
  }
}

TEST_CASE("ranks are told of compare's folder what the one that writes refuses") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const int port = RunStore::host(0)->port();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Running>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Running>(
        folder, std::vector<std::string>{"compare", plan, plan, "--emulate", "-o", plan},
        std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(port)}));
  }
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait();
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("plan.json: is a file, expected a folder"));
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(50));  // ranks wait 60 s for each other
}

// The store of a launcher, as torchrun's agent hosts it, is there before and after rank 0.
TEST_CASE("only rank 0 reports surplus ranks") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const auto store = RunStore::host(0, RunStore::Reach::this_host);
  for (int rank = 0; rank < 3; ++rank) {
    const Ended ended = run(folder, {"run", plan, "--emulate"},
                            {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                             "MASTER_PORT=" + std::to_string(store->port()), "TORCHELASTIC_USE_AGENT_STORE=True"});
    CHECK(ended.status == 2);
    CHECK(ended.err.empty() == (rank > 0));
  }
}

TEST_CASE("only rank 0 reports surplus ranks that were started by hand, after waiting for the others") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  const int port = RunStore::host(0)->port();
  const auto rank = [&](int number) {
    return std::make_unique<Running>(
        folder, std::vector<std::string>{"run", plan, "--emulate"},
        std::vector<std::string>{"RANK=" + std::to_string(number), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(port)});
  };
  std::vector<std::unique_ptr<Running>> ranks;
  ranks.push_back(rank(0));
  {
    const auto store = RunStore::join("127.0.0.1", port, {20}, 0);
    wait_until([&] { return !store->stop_reason().empty(); });
  }
  for (const int number : {1, 2}) ranks.push_back(rank(number));
  for (std::size_t number = 0; number < ranks.size(); ++number) {
    const Ended ended = ranks[number]->wait();
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.err.empty() == (number > 0));
  }
}

TEST_CASE("a lone rank other than 0, by variables of another run, says itself what is wrong") {
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 4);
  // Nobody listens there, or the store of a run whose ranks go on.
  const auto others = GENERATE(false, true) ? RunStore::host(0, RunStore::Reach::this_host) : nullptr;
  const int port = others ? others->port() : RunStore::host(0)->port();
  const Ended ended = run(folder, {"run", plan, "--emulate"},
                          {"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)});
  INFO(ended.err);
  CHECK(ended.status == 2);
  CHECK_THAT(ended.err, ContainsSubstring("torchrun: has started 8 ranks, but ") && ContainsSubstring(" needs 2") &&
                            ContainsSubstring("if no launcher has started this: unset RANK WORLD_SIZE"));
  if (others) CHECK_FALSE(others->find("left/3"));
}

TEST_CASE("a timeline that cannot be written: the results are printed, and that is said once") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 16);
  Running running(folder, {"run", plan, "--emulate", "--transport", transport, "-o", folder / "measured.json"}, {},
                  {"sh", "-c", "ulimit -f 8; exec \"$@\"", "sh"});
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.out, ContainsSubstring("median step"));
  CHECK_THAT(ended.err, ContainsSubstring("measured.json: ") && !ContainsSubstring("ended with status"));
}
