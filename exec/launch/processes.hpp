// Ranks of a run as processes of this host: all end when one fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

struct RankEnd {
  int rank = 0;
  int exit_status = 0;
  int signal = 0;  // that killed it; 0 if it exited
  bool operator==(const RankEnd&) const = default;
};

// Rank whose process was stopped by a signal and did not go on.
struct RankStop {
  int rank = 0;
  int signal = 0;
  Seconds since = {};
};

struct ProcessOptions {
  int ranks = 1;
  int store_port = 0;                  // of the run's store on this host
  std::string program;                 // this program if empty
  std::vector<std::string> arguments;  // this program's if empty
  Seconds stopped_limit{5};            // that a rank may be stopped (SIGSTOP) before the run ends
  Seconds grace{3};                    // between SIGTERM and SIGKILL if a rank has failed
  // The same if all are told to end, asked after `before_ending`: ranks may have results to write. `grace` if empty.
  std::function<Seconds()> grace_when_told = {};
  std::function<int()> told_to_end = {};      // number of requests until now; two kill all ranks at once
  std::function<std::string()> give_up = {};  // reason to end the run as failed; empty if there is none
  std::function<void()> before_ending = {};   // called once, before ranks are told to end
};

struct ProcessesEnd {
  // Ranks that failed by themselves: the first failures first, killed ones before others of the same moment. Empty if
  // none did, or if all were told to end.
  std::vector<RankEnd> failures;
  std::vector<RankEnd> killed;    // all that ended by a signal, those that had been told to end too
  std::vector<RankStop> stopped;  // when the run's end began, the longest first
  std::string gave_up;            // reason of give_up; empty if it had none
  Seconds own_pause{0};           // for which this process was stopped itself
  int answer = 0;                 // 1 if rank 0's status was 1
};

// Starts one process per rank with torchrun's variables and waits for all. If one fails (a signal, an exit status other
// than 0 and 1, or stopped for longer than the limit), the others get SIGTERM, then SIGKILL.
[[nodiscard]] ProcessesEnd run_as_processes(const ProcessOptions& options);

// Makes a process that was started so end with its launcher, even when that is killed.
void end_with_launcher();

}  // namespace plumb::exec
