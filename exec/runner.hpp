// Runs a rank's list of actions step by step and writes down when each began and ended.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct RunOptions {
  int steps = 1;
  double deadline_factor = 20;         // an action's deadline: this many times its predicted time …
  Seconds deadline_floor = {60};       // … but never less
};

// What one rank wrote down; rank 0 merges them (a receive's start is its sender's time).
struct RankLog {
  int rank = 0;
  std::vector<std::vector<Event>> steps;  // sends included, times since the step's common start
};

// Runs `lowered.actions[transport.rank()]` for every step. `stages[s]` is null where another rank holds s.
// An error names rank and action, tells the other ranks to stop and is rethrown as RunError.
[[nodiscard]] RankLog run_rank(const Plan& plan, const Schedule& lowered, Transport& transport,
                               const std::vector<std::unique_ptr<Stage>>& stages, const RunOptions& options);

// The logs of all ranks as one timeline of measured steps.
[[nodiscard]] Timeline merge_logs(const Plan& plan, const Schedule& lowered, const std::vector<RankLog>& logs,
                                  const std::string& producer);

}  // namespace plumb::exec
