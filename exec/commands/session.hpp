// What `run` and `compare` share: the ranks of one or more plans, started, run in alternation, and their logs merged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/check/check.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/launch/signal_watch.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

class FolderLock;  // exec/checkpoint/folder_lock.hpp

// Of a training that is saved, resumed or logged.
struct CheckpointOptions {
  std::string folder = {};                             // of checkpoints; empty: none is saved
  int every = 0;                                       // steps; 0: one after the last step alone
  bool beside = false;                                 // the steps that follow
  int keep = 0;                                        // the newest; 0: all
  std::shared_ptr<const Checkpoint> resume = nullptr;  // null: it begins with its first step
  std::string data_digest = {};                        // as CheckpointIndex has it
  std::string log = {};                                // of StepLog; empty: none
  std::shared_ptr<const FolderLock> lock = nullptr;    // of the folder, for the run; null: another process has it
};

struct SessionOptions {
  int steps = 5;                    // measured
  int warm_up = 1;                  // steps before them, trained and reported apart
  std::string transport = "local";  // or "gloo", "nccl"
  std::string device = "cpu";       // or "cuda": what LibTorch's accelerator is
  bool emulate = false;
  std::optional<std::int64_t> emulate_bytes = {};  // of a boundary, instead of the plan's
  bool check = false;                              // of the first plan
  bool gathers_weights = false;                    // of the first plan, after the last step
  StageOptions stage = {};
  Seconds deadline{60};               // of an action, at least
  Seconds start_deadline{60};         // for ranks to join the run and to connect
  std::string fault = {};             // put into the schedule on purpose; empty: none
  bool force_unchecked = false;       // run what the validator refuses
  bool tells_steps = false;           // a line on standard error as they come: of one plan
  CheckpointOptions checkpoint = {};  // of one plan
};

// The steps of the training, those before a resumed checkpoint too; how many these are; and how many steps of the
// warm-up are behind it.
[[nodiscard]] std::int64_t all_steps(const SessionOptions& options);
[[nodiscard]] std::int64_t first_step(const SessionOptions& options);
[[nodiscard]] int warm_up_left(const SessionOptions& options);

// What a rank receives into on a device: planned before the run, and what went beside it although it was planned.
struct ArenaUse {
  Bytes bytes;
  std::int64_t receives_beside = 0;  // of all steps, the warm-up too
};

struct PlanRun {
  Plan plan;
  Timeline timeline;  // of the measured steps
  std::vector<Seconds> warm_up;
  std::vector<ArenaUse> arenas = {};        // by rank; none on the host
  std::vector<double> losses;               // of all steps, the warm-up first; empty when emulated
  std::vector<double> gradient_norms = {};  // likewise, before they were clipped; empty where they are not
  double replay_error_fraction = 0;         // of the median step
  std::optional<CheckResult> check;
  NamedGradients weights;                        // kept_weights of all ranks, adapters merged in, if gathered
  std::vector<std::string> clock_warnings = {};  // a line for each host whose clock jumped
};

// Within how much the times of ranks on several hosts agree, and which clocks jumped: whole lines. Empty: all ranks
// read one clock.
[[nodiscard]] std::string clock_lines(const PlanRun& run);

// Empty in a process that has nothing to tell: a rank other than 0, or the launcher of ranks that have told already.
struct SessionResult {
  ExitStatus status = ExitStatus::done;
  std::vector<PlanRun> runs;
  std::string interrupted = {};               // why there are fewer steps than asked for, and no weights and no check
  std::vector<std::string> checkpoints = {};  // that were saved
  std::string check_interrupted = {};         // why there is all but the check; empty where the launcher says it
};

// Seconds for a rank to be ready for its first step, once all have joined: it builds its model and reads a checkpoint.
[[nodiscard]] inline Seconds prepare_deadline(const SessionOptions& options) {
  constexpr double times_start = 10;  // --help says so
  return {options.start_deadline.value * times_start};
}

// Throws InputError for what is refused, before any rank starts, and RunError naming rank and action.
[[nodiscard]] SessionResult run_session(std::vector<Plan> plans, const SessionOptions& options);

// Returns a watch for the time in which files are written: a rank that plumb-exec has started ends by the signal, and
// leaves no file half-written. None for other processes, which first_signals serves.
[[nodiscard]] std::optional<SignalWatch> while_results_are_written();

}  // namespace plumb::exec
