// What a host allows, and what it does to a run: too few open files, and a pause of the whole run.
#include <csignal>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace std::chrono_literals;

namespace {

Ended run_with_files(const TemporaryFolder& folder, const std::vector<std::string>& words, int files) {
  Running running(folder, words, {}, {"sh", "-c", "ulimit -n " + std::to_string(files) + "; exec \"$@\"", "sh"});
  return running.wait();
}

}  // namespace

TEST_CASE("too few open files are refused with how many are needed, and so many are enough") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.ranks = 2, .data = 2})));
  const std::vector<std::string> words{"run",       plan, "--transport", "gloo",   "--steps",       "1",
                                       "--warm-up", "0",  "--check",     "--save", folder / "saved"};
  const Ended refused = run_with_files(folder, words, 16);
  INFO(refused.err);
  CHECK(refused.status == 2);
  CHECK(std::ranges::count(refused.err, '\n') == 2);  // the error and its hint
  CHECK_THAT(refused.err, ContainsSubstring("open files, and this process may have 16"));
  CHECK_FALSE(std::filesystem::exists(folder / "saved/step-000001"));

  // The launcher is refused first, then the rank that needs most.
  int needed = 16;
  for (int tries = 0; tries < 3; ++tries) {
    const Ended ended = run_with_files(folder, words, needed);
    INFO(ended.err);
    std::smatch found;
    if (!std::regex_search(ended.err, found, std::regex("ulimit -n ([0-9]+)"))) {
      CHECK(ended.status == 0);
      break;
    }
    CHECK(std::stoi(found[1]) > needed);
    needed = std::stoi(found[1]);
  }
  CHECK(needed < 100);
}

TEST_CASE("a run that was stopped for longer than its deadline goes on as if nothing had been") {
  const std::string transport = GENERATE("local", "gloo");
  const TemporaryFolder folder;
  Running running(folder, {"run", write_slow_plan(folder, 2, 16), "--emulate", "--transport", transport, "--steps",
                           "100000", "--deadline", "2"});
  wait_until([&] { return ("\n" + running.told()).find("\nstep ") != std::string::npos; });
  std::vector<pid_t> processes{running.pid()};
  for (int rank = 0; transport == "gloo" && rank < 2; ++rank) processes.push_back(running.rank_process(rank));
  for (const pid_t process : processes) ::kill(process, SIGSTOP);
  std::this_thread::sleep_for(9s);  // more than the deadline, and than the watchdog's patience behind it
  for (const pid_t process : processes) ::kill(process, SIGCONT);
  std::this_thread::sleep_for(1s);
  ::kill(running.pid(), SIGINT);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted (SIGINT)") && !ContainsSubstring("deadline"));
  CHECK_THAT(ended.out, ContainsSubstring("median step"));
}
