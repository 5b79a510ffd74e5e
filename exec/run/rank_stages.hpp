// The stages of one rank as its actions name them, and sums of gradients between them.
#pragma once

#include <memory>
#include <vector>

#include "common/schedule/schedule.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/device/device.hpp"
#include "exec/stage/stage.hpp"

namespace plumb::exec {

class RankStages {
 public:
  using List = std::vector<std::unique_ptr<Stage>>;

  // `all` by stage_slot. Both must outlive this.
  RankStages(const Schedule& lowered, int rank, const List& all) : lowered_(lowered), rank_(rank), all_(all) {}

  [[nodiscard]] const List& all() const { return all_; }

  // Each throws RunError when the stage is not on this rank.
  // In the replica that the microbatch goes through:
  [[nodiscard]] Stage& of(const Action& action) const;
  // In the replica whose copy this rank has:
  [[nodiscard]] Stage& held(int stage) const;

  // F, R, I, B, W or STEP: of what the action reads what it makes. Throws RunError for another kind.
  [[nodiscard]] Payload compute(const Action& action, Payload input) const;

  // Where this rank holds both copies of a tied table, no message is needed, only the sum, which both get.
  void add_tied_gradients(Stream& compute) const;

  // Of the step that has ended, of those of the last stage that are here; all ranks of a divided vocabulary have it.
  [[nodiscard]] double loss() const;

  // What a STEP that has been made copied to its states on the host and back; nothing of other actions.
  void add_host_copies(Event& event) const;

  // What a reduction sums, and with which rank of the pipeline; -1: with the data-parallel ranks.
  struct Reduction {
    int peer = -1;
    std::vector<DeviceFloats> gradients;  // each on its own, in the same order on all ranks
  };
  [[nodiscard]] Reduction reduction(const Action& action) const;

 private:
  [[nodiscard]] Stage& in(int replica, int stage) const;

  const Schedule& lowered_;
  int rank_;
  const List& all_;
};

}  // namespace plumb::exec
