// Measures this machine: F, I, W, optimizer and memory of every distinct block, and the transport.
#pragma once

#include <functional>
#include <string>

#include "common/cost/profile.hpp"
#include "common/plan/scenario.hpp"

namespace plumb::exec {

struct CalibrationOptions {
  int rounds = 15;  // each round measures every distinct block once, in alternation
  std::string transport = "local";
  std::function<void(int done, int total)> progress;
};

// All ranks that would compute at the same time measure at the same time, one thread each, so that the machine is as
// busy as in a run. Rounds whose sum lies far from the median are rejected and repeated; after too many it says so in
// the profile. Throws InputError for layer kinds that are not executed yet.
[[nodiscard]] Profile calibrate(const Scenario& scenario, const CalibrationOptions& options);

}  // namespace plumb::exec
