// The loss and learning rate of each step of a training as JSON lines, for programs that draw them.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/units.hpp"

namespace plumb::exec {

struct LoggedStep {
  std::int64_t step = 0;  // how many were made with this one
  double loss = 0;        // mean per token
  double learning_rate = 0;
  std::int64_t sequences = 0;  // where the data stand behind it: steps · global_batch, whatever batches were before
  Seconds seconds;
  std::int64_t tokens = 0;  // of this step
};

// {"step": 12, "loss": 5.1, "learning_rate": 0.001, "sequences": 96, "step_s": 0.2, "tokens_per_s": 10240.0}; a loss
// that is no number is null. One line.
[[nodiscard]] std::string to_json_line(const LoggedStep& step);

// Throws InputError where something is there that is no regular file (opening a pipe waits for a reader, and the lines
// before a checkpoint cannot be kept in it), one whose first line is none of such a log (a run that does not resume
// begins it anew), or one that another run writes to.
void require_log_file(const std::string& path);

// Lines are there as soon as they are added, also if the program is killed behind that. Locked while it lives.
class StepLog {
 public:
  // Of a run that begins behind `steps` steps: what a file has of these stays, what it has of later ones is what a run
  // before did behind its last checkpoint, and goes, as does a line that is cut short. With 0 steps it is begun anew.
  // Throws as require_log_file, and InputError if it cannot be read or written, or a line to be kept has no step.
  StepLog(std::string path, std::int64_t steps);
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  ~StepLog();

  // Throws RunError with the system's own words, as where the disk is full.
  void add(const LoggedStep& step);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace plumb::exec
