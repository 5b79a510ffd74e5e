// What a rank does between the steps of a training: it resumes, saves checkpoints and logs losses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/checkpoint/save.hpp"
#include "exec/checkpoint/step_log.hpp"
#include "exec/commands/session.hpp"
#include "exec/device/clock.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct PreparedPlan;  // exec/commands/rank_work.hpp

// On the rank's thread. All ranks make the same calls: some talk to each other. Without anything to save, to resume or
// to log nothing is done, and nobody waits.
class BetweenSteps {
 public:
  // All must outlive this. Resumes at once, where options say from what. Throws as `restore` and CheckpointSaver.
  BetweenSteps(const PreparedPlan& prepared, const SessionOptions& options, Transport& transport,
               const std::vector<std::unique_ptr<Stage>>& stages);

  // Behind step number `step`, from 0, which took so long here. Throws as CheckpointSaver::save and StepLog::add.
  void after(std::int64_t step, const RankStep& done, Seconds took);

  // Whose folders, in the order in which they were saved.
  [[nodiscard]] const std::vector<std::string>& saved() const { return saved_; }

 private:
  [[nodiscard]] bool saves_after(std::int64_t steps) const;
  void log(std::int64_t steps, const RankStep& done, Seconds took);
  void save(std::int64_t steps);
  void saved(const std::filesystem::path& folder, Clock::time_point begun);

  const PreparedPlan& prepared_;
  const SessionOptions& options_;
  Transport& transport_;
  std::optional<CheckpointSaver> saver_;
  std::optional<StepLog> log_;    // on rank 0
  Clock::time_point begun_ = {};  // of what is saved beside steps
  std::vector<std::string> saved_;
};

}  // namespace plumb::exec
