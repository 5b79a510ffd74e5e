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
// write over, or anything else where one is to be: in every process alike, so that none waits for one that has refused.
// What the user should know is written to `said`, a line each. Throws InputError.
[[nodiscard]] CheckpointOptions checkpoint_options(const CheckpointArguments& arguments, const Plan& plan,
                                                   const SessionOptions& options, std::ostream& said);

// Throws InputError where what `option` writes would stand among the checkpoints of --save's folder: in one, at the
// name of one, or in the place of its lock. Either may be empty.
void require_beside_checkpoints(const std::string& option, const std::string& output, const std::string& save);

// In the one process that writes for the run: makes the folder, locks it, looks again, and removes what ended runs have
// left in it. Nothing where nothing is saved. Throws InputError, and RunError where something cannot be removed.
void take_folder(CheckpointOptions& options, const Plan& plan, std::ostream& said);

}  // namespace plumb::exec
