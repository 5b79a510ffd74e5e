// What a host does to a run: a pause of all of it.
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace std::chrono_literals;

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
