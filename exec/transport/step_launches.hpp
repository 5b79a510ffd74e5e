// Where a rank stands among the launches of its step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"
#include "exec/transport/launch_plan/launched.hpp"

namespace plumb::exec {

// Of one rank, on its thread. What the transport launches it asks for; what actions make of themselves it is told, and
// compares with the launches: NCCL would wait for ever, or mix up bytes, where ranks do not make the same collectives.
class StepLaunches {
 public:
  // `rank`: for errors.
  explicit StepLaunches(int rank) : rank_(rank) {}

  // `launches` must live until `end`.
  void begin(const RankLaunches& launches);

  // The next batch that the transport is to launch for the action at `place` or one before it; null: there is none, or
  // the action makes a collective first. Throws RunError for a collective that an action before was to make.
  [[nodiscard]] const LaunchBatch* next(std::int32_t place);

  // Which batch a collective belongs to that is made now; null: to none, as outside of a step. Throws RunError where a
  // group's is not the next that the action has: what is made, and what comes next.
  [[nodiscard]] const LaunchBatch* made(const CommunicatorSpec& over, const CollectiveCall& call) const;

  // Over which communicator the next sum is that the action makes; nothing: the launches do not say.
  [[nodiscard]] std::optional<CommunicatorUse> next_sum() const;

  // The batch of one of these two has been put on its stream between these moments.
  void launched(const MomentPtr& begin, const MomentPtr& end);

  // All batches of the step. Throws RunError where some were not launched.
  [[nodiscard]] std::vector<Launched> end();

 private:
  [[nodiscard]] RunError failure(const std::string& problem) const;

  int rank_;
  const RankLaunches* launches_ = nullptr;  // between steps none
  std::size_t next_ = 0;
  std::int32_t place_ = -1;  // of the action that runs
  std::vector<Launched> launched_;
};

// In words: "1RECV_F3 from rank 0 + 1SEND_F2 to rank 2 on down", "all-reduce of … on tensor (ranks 0, 1)".
[[nodiscard]] std::string words(const LaunchBatch& batch);

}  // namespace plumb::exec
