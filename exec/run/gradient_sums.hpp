// A rank's sums of gradients: with another rank of its pipeline, and with those that train its stages on other data.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/device/device.hpp"
#include "exec/emulation/emulated_wire.hpp"
#include "exec/run/lane_transport.hpp"
#include "exec/run/overlapped_reduction.hpp"
#include "exec/run/rank_stages.hpp"
#include "exec/run/step_moments.hpp"
#include "exec/transport/collectives/quantised_sums.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {

// Behind the backward or, over other data and where the plan's software says so, beside the last one of each stage.
class GradientSums {
 public:
  // `actions`: the rank's list. All must outlive this. `emulated`: not null, nothing is moved, sums take that wire's
  // times; on hosts alone.
  GradientSums(const Plan& plan, const std::vector<Action>& actions, LaneTransport& transport, const RankStages& stages,
               Device& device, EmulatedWire* emulated);

  void begin_step();

  // Around a compute action, within which calls throw as OverlappedReduction::prepare has it.
  void before(const Action& action) {
    if (overlapped_) overlapped_->prepare(action, stages_.held(action.stage));
  }
  void behind() {
    if (overlapped_) overlapped_->complete();
  }
  // Takes on what has come. Never waits.
  void progress() {
    if (overlapped_) overlapped_->progress();
  }

  // REDUCE_TIED or REDUCE_GRAD (of HSDP over the ranks of a copy, then of the own part over the copies): fills in
  // `event` all but its end, and of an asynchronous device `moments`. Throws as Transport::all_reduce,
  // Transport::collective or Collectives::reduce_scatter.
  void perform(const Action& action, Event& event, ActionMoments& moments, Clock::time_point deadline);

  // Both of a table whose ends stand on this rank: once a step, before they are summed with another rank's, or applied.
  void add_tied_of_this_rank();

 private:
  void emulate(const Action& action, Event& event, ActionMoments& moments, Clock::time_point deadline);
  void take_overlapped(const Action& action, Event& event, ActionMoments& moments, Clock::time_point deadline);
  // Ranks of the pipeline, ascending.
  [[nodiscard]] std::array<int, 2> pair_with(int peer) const;
  void sum(int peer, std::span<float> values, Clock::time_point deadline);
  void sum_own_part(std::span<float> values, Clock::time_point deadline);
  [[nodiscard]] Bytes sum_on_stream(Collective kind, std::span<const int> group,
                                    const std::vector<DeviceFloats>& gradients);
  [[nodiscard]] Bytes sum_over_copies(Stage& stage, Clock::time_point deadline);

  LaneTransport& transport_;
  const RankStages& stages_;
  Device& device_;
  EmulatedWire* emulated_;
  // Of the layout's ranks: those whose gradients are summed, all of the data axis, or where there are several copies of
  // the states one copy's; and those that have the same part in all copies.
  std::vector<int> group_;
  std::vector<int> copies_;
  bool shards_;                                    // of the states: each rank needs its part of a sum
  std::optional<OverlappedReduction> overlapped_;  // where the software reduces beside the backward
  std::optional<QuantisedSums> quantised_;         // of gradients that travel as int4
  bool tied_added_ = false;
};

}  // namespace plumb::exec
