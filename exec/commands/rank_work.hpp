// What each rank of a session does, whatever its transport: make its stages, run the steps, hand its logs to rank 0.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "common/layout/tensor_grid.hpp"
#include "exec/commands/session.hpp"
#include "exec/device/device.hpp"
#include "exec/host/host_identity.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/run/runner.hpp"
#include "exec/run/watchdog.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/receive_arena.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

class ClockExchange;  // exec/launch/clock_exchange.hpp

struct PreparedPlan {
  Plan plan;
  Schedule lowered;
  LaunchPlan launches = {};              // for NCCL; else none
  std::vector<ReceiveSlots> slots = {};  // by rank, for devices; else none
};

// As many as its layout has.
[[nodiscard]] inline int ranks_of(const PreparedPlan& prepared) { return ranks(prepared.plan.layout); }

// By plan; only rank 0 has it.
struct SessionLogs {
  std::vector<std::vector<RankLog>> ranks = {};
  std::string device = {};                       // of rank 0
  Trained checked = {};                          // of the first plan, with `check`; without losses
  NamedGradients weights = {};                   // of the first plan, where they are gathered
  std::string different_copy = {};               // of the gradients: which rank's copy of what has other bits
  Seconds clock_uncertainty = {};                // as Timeline has it
  std::vector<int> clock_of_rank = {};           // so too
  std::vector<std::string> clock_warnings = {};  // of ClockExchange
  std::vector<std::string> checkpoints = {};     // folders of those that were saved
  std::string interrupted = {};                  // why it ended before its time, with the whole steps until then
};

[[nodiscard]] inline std::vector<double> losses_of(const PreparedPlan& prepared, const std::vector<RankLog>& logs) {
  return losses_of(prepared.plan, prepared.lowered, logs);
}

// One per process. Where ranks are threads, all share it.
class RankWork {
 public:
  RankWork(const std::vector<PreparedPlan>& plans, const SessionOptions& options);

  // Rank 0 returns the logs of all, on its own clock, the others nothing. `device` and `host` are this rank's.
  [[nodiscard]] SessionLogs run(Transport& transport, Device& device, Watchdog& watchdog, const HostIdentity& host);

  // Of a run that was ended: what this process's rank has logged and saved, as text, and the logs of all ranks from
  // such texts; where all are threads of this process, without. Of every rank and plan as many steps as all have made.
  [[nodiscard]] std::string log_so_far(int rank) const;
  [[nodiscard]] SessionLogs logs_so_far() const;
  [[nodiscard]] SessionLogs logs_so_far(const std::vector<std::string>& texts) const;

  // As whose memory a rank's counts at the moment.
  [[nodiscard]] int account(int rank) const;

  // Names what a rank does before its first step: "connecting to the other ranks". `activity` is static text.
  void prepares(int rank, const char* activity) { preparing_[static_cast<std::size_t>(rank)] = activity; }

  // Returns what a rank does: "plan step action" in numbers, or its activity before the first step.
  [[nodiscard]] std::string doing(int rank, const Watchdog& watchdog) const;
  // Returns it in words.
  [[nodiscard]] std::string describe(int rank, const std::string& doing) const;
  // True if it is an action of a step.
  [[nodiscard]] static bool is_in_step(const std::string& doing);

  // Returns one line per rank, from what each is doing. Empty text is a rank that has not joined the run.
  [[nodiscard]] std::string describe_all(const std::vector<std::string>& doing) const;

 private:
  void tell_step(int rank, std::int64_t step, Seconds took) const;
  [[nodiscard]] SessionLogs train(Transport& transport, Device& device, Watchdog& watchdog, const HostIdentity& host);
  // Plans that alternate keep accounts of their own: the peak of one has nothing of the other's weights.
  [[nodiscard]] int account(std::size_t plan, int rank) const;
  [[nodiscard]] std::string data_digest() const;  // of the text that this rank reads
  void require_same_plans(Transport& transport) const;
  [[nodiscard]] bool divides_weights() const { return divides_tensors(plans_.front().plan.layout); }
  using Stages = std::vector<std::unique_ptr<Stage>>;
  struct Ready;
  [[nodiscard]] Ready made_ready(Transport& transport, Device& device);
  [[nodiscard]] RunOptions run_options(Watchdog& watchdog, Device& device, const std::size_t& running) const;
  // The logs of all ranks on rank 0's clock, with what was asked for of the first plan's stages.
  // `before`: its weights before the last step, where the check wants them.
  [[nodiscard]] SessionLogs gathered(Transport& transport, ClockExchange& clocks, const std::vector<RankLog>& logs,
                                     const Stages& first, const NamedGradients& before) const;

  const std::vector<PreparedPlan>& plans_;
  const SessionOptions& options_;
  std::vector<std::atomic<int>> current_plan_;       // by rank
  std::vector<std::atomic<const char*>> preparing_;  // by rank; nullptr in the steps
  std::vector<std::vector<RankLog>> logs_;           // by rank, then by plan
  std::vector<std::string> saved_;                   // by rank 0: folders of checkpoints
};

}  // namespace plumb::exec
