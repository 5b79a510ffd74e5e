// Starts the ranks of a run as processes of this host, and ends all when one fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

struct RankEnd {
  int rank = 0;
  int exit_status = 0;
  int signal = 0;  // that killed it; 0: it exited
  bool operator==(const RankEnd&) const = default;
};

struct ProcessOptions {
  int ranks = 1;
  int store_port = 0;                        // the ranks find the run's store there, on this host
  std::string program;                       // empty: this program …
  std::vector<std::string> arguments;        // … empty: with the same arguments
  Seconds grace{3};                          // between SIGTERM and SIGKILL, where a rank has failed
  Seconds grace_when_told{30};               // where all were told to end: they still write what they have
  std::function<int()> told_to_end = {};     // looked at all the time, how often: once ends all ranks, twice at once
  std::function<void()> before_ending = {};  // called once, before ranks are told to end
};

// Starts one process per rank with torchrun's variables and waits for all. When one fails (a signal, or an exit status
// other than 0 and 1), the others get SIGTERM, then SIGKILL. Returns those that failed by themselves, first failures
// first, killed ones before others that were seen at the same time; empty if none did or all were told to end.
// `killed`: all that ended by a signal, those that had been told to end too. `answer` is 1 if rank 0 said no.
struct ProcessesEnd {
  std::vector<RankEnd> failures;
  std::vector<RankEnd> killed;
  int answer = 0;
};
[[nodiscard]] ProcessesEnd run_as_processes(const ProcessOptions& options);

// In a process that was started so: ends with its launcher, even when that is killed.
void end_with_launcher();

}  // namespace plumb::exec
