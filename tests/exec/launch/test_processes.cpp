#include "exec/launch/processes.hpp"

#include <chrono>
#include <csignal>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Ranks that are shells.
ProcessesEnd run_shells(const std::string& script, int ranks, double grace = 0.3,
                        const std::function<void()>& before_ending = {}) {
  return run_as_processes({.ranks = ranks,
                           .store_port = 4711,
                           .program = "/bin/sh",
                           .arguments = {"sh", "-c", script},
                           .grace = {grace},
                           .before_ending = before_ending});
}

}  // namespace

TEST_CASE("each rank finds torchrun's variables") {
  const std::string check =
      R"([ "$WORLD_SIZE" = 3 ] && [ "$MASTER_PORT" = 4711 ] && [ "$LOCAL_RANK" = "$RANK" ] && [ "$RANK" -lt 3 ] || exit 9)";
  CHECK(run_shells(check, 3).failures.empty());
  // The check can fail; the first to do so may end others before they could.
  CHECK_FALSE(run_shells(check, 4).failures.empty());
}

TEST_CASE("an exit status of 1 is rank 0's answer, not a failure") {
  CHECK(run_shells("exit 1", 2).answer == 1);
  CHECK(run_shells("exit 1", 2).failures.empty());
  CHECK(run_shells("[ $RANK = 0 ]", 2).answer == 0);
}

TEST_CASE("when one rank dies the others are ended, and it is the one that is named") {
  int calls = 0;
  const ProcessesEnd end = run_shells("[ $RANK = 1 ] && kill -9 $$; exec sleep 3600", 3, 0.3, [&] { ++calls; });
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures.front() == RankEnd{.rank = 1, .exit_status = 0, .signal = SIGKILL});
  CHECK(calls == 1);
}

TEST_CASE("told to end, all ranks end, and none of them failed") {
  const auto start = std::chrono::steady_clock::now();
  const auto told = [&] { return std::chrono::steady_clock::now() - start > std::chrono::milliseconds(200) ? 1 : 0; };
  const ProcessesEnd end = run_as_processes({.ranks = 2,
                                             .store_port = 4711,
                                             .program = "/bin/sh",
                                             .arguments = {"sh", "-c", "exec sleep 3600"},
                                             .told_to_end = told});
  CHECK(end.failures.empty());
}

TEST_CASE("told to end twice, ranks that ignore SIGTERM are killed at once, not after the grace time") {
  const auto start = std::chrono::steady_clock::now();
  const auto told = [&] {
    return static_cast<int>((std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(200));
  };
  const ProcessesEnd end = run_as_processes(
      {.ranks = 2,
       .store_port = 4711,
       .program = "/bin/sh",
       .arguments = {"sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"},
       .grace_when_told = [] { return Seconds{3600}; },  // the test ends before: ctest's limit would not
       .told_to_end = told});
  CHECK(end.failures.empty());
}

TEST_CASE("ranks that ignore SIGTERM, or are stopped, are killed after the grace time") {
  const std::string stubborn = "trap '' TERM; while :; do sleep 0.05; done";
  const std::string script = "case $RANK in 0) sleep 0.3; exit 3;; 1) " + stubborn + ";; 2) kill -STOP $$;; esac";
  const ProcessesEnd end = run_shells(script, 3);
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures.front() == RankEnd{.rank = 0, .exit_status = 3, .signal = 0});
}

// Its launcher sees it at once: nothing that the rank itself has to set up before takes part.
TEST_CASE("a rank that is stopped for longer than the limit ends the run, and is the one that is named") {
  const auto start = std::chrono::steady_clock::now();
  const ProcessesEnd end =
      run_as_processes({.ranks = 3,
                        .store_port = 4711,
                        .program = "/bin/sh",
                        .arguments = {"sh", "-c", "[ $RANK = 1 ] && kill -STOP $$; exec sleep 3600"},
                        .stopped_limit = {0.5},
                        .grace = {3600}});
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(500));
  CHECK(end.failures.empty());
  REQUIRE(end.stopped.size() == 1);
  CHECK(end.stopped.front().rank == 1);
  CHECK(end.stopped.front().signal == SIGSTOP);
  CHECK(end.stopped.front().since >= Seconds{0.5});
}

TEST_CASE("a rank that goes on within the limit is no failure") {
  const ProcessesEnd end = run_as_processes(
      {.ranks = 2,
       .store_port = 4711,
       .program = "/bin/sh",
       .arguments = {"sh", "-c", "[ $RANK = 1 ] || exit 0; (sleep 0.3; kill -CONT $$) & kill -STOP $$"},
       .stopped_limit = {3600}});
  CHECK(end.failures.empty());
  CHECK(end.killed.empty());
}

TEST_CASE("a reason to give up ends all ranks as failed") {
  const ProcessesEnd end = run_as_processes({.ranks = 2,
                                             .store_port = 4711,
                                             .program = "/bin/sh",
                                             .arguments = {"sh", "-c", "exec sleep 3600"},
                                             .give_up = [] { return std::string("rank 1 of 2 did not join"); }});
  CHECK(end.gave_up == "rank 1 of 2 did not join");
  CHECK(end.failures.empty());
}

TEST_CASE("a program that cannot be started is said") {
  CHECK_THROWS_WITH(run_as_processes({.ranks = 2, .program = "/nowhere/at/all", .arguments = {"x"}}),
                    ContainsSubstring("could not be started") && ContainsSubstring("No such file"));
}
