// Options of `run` that save, resume and log a training, and what they mean for a plan.
#pragma once

#include <iosfwd>
#include <string>

#include "exec/commands/session.hpp"

namespace CLI {
class App;
}

namespace plumb::exec {

struct CheckpointArguments {
  std::string save;  // a folder of checkpoints
  int every = 0;     // steps; 0: at the end alone
  bool asynchronous = false;
  int keep = 0;        // the newest; 0: all
  std::string resume;  // "latest", or a folder
  std::string log;     // a file
};

void add_checkpoint_arguments(CLI::App& command, CheckpointArguments& arguments);

// Whether a training goes on behind this run, so that its steps count from its begin.
[[nodiscard]] bool is_training(const CheckpointArguments& arguments);

// Finds what is resumed and holds it against the plan, and refuses a folder that has checkpoints which the run would
// write over. In the one process that `writes` for the run the folder is made and locked, and what ended runs have left
// in it is removed. What the user should know is written to `said`, a line each. Throws InputError.
[[nodiscard]] CheckpointOptions checkpoint_options(const CheckpointArguments& arguments, const Plan& plan,
                                                   const SessionOptions& options, bool writes, std::ostream& said);

}  // namespace plumb::exec
