// The sum of a rank's gradients over its data-parallel ranks, in buckets beside the last backward of each stage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/device/device.hpp"
#include "exec/emulation/emulated_wire.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/collectives/sums_beside.hpp"
#include "exec/transport/launch_plan/filling_bucket.hpp"

namespace plumb::exec {

// What the plan's software says of its overlap (common/cost/software.hpp, GradientBucket). A bucket starts when all of
// its gradients are complete. On hosts the bits are those of one sum behind the backward; on an asynchronous device a
// bucket is a launch on the data group's stream, behind what compute had been given when it was full, as its launches
// state beforehand (exec/stage/tensor/action_calls.hpp).
class OverlappedReduction {
 public:
  // `actions`: the rank's list. `data_group`: ranks of `world` that sum (where there are several copies of the states,
  // one copy's); that must outlive this, as `device` and `emulated`. Not null: nothing is moved, a bucket takes that
  // wire's time.
  OverlappedReduction(const Plan& plan, const std::vector<Action>& actions, Transport& world, Device& device,
                      std::vector<int> data_group, EmulatedWire* emulated);

  void begin_step() { sums_.clear(); }

  // Before a compute action. Throws as Transport::send or Transport::collective while the stage runs it.
  void prepare(const Action& action, Stage& stage);
  // Behind a compute action: what is left of a bucket starts.
  void complete() { start(bucket_.take()); }
  // Takes on what has come. Never waits.
  void progress();

  // Of a stage, in this step.
  struct Sum {
    Bytes bytes = {};              // of the gradients that it has reported
    Clock::time_point begun = {};  // on a host when the first bucket started,
    MomentPtr first = {};          // on a device from when it could,
    MomentPtr last = {};           // and when the last one has ended
    std::size_t started = 0;       // on a host: so many sums of all stages, up to its last,
    Clock::time_point end = {};    // and where it is emulated when that ends, unless another rank is late
  };
  // On a host waits for them, and throws as Collectives::all_reduce; on a device compute does. Of an emulated wire
  // waits until they end here.
  [[nodiscard]] Sum finish(std::int32_t stage, Clock::time_point deadline);
  // Of all stages, on a host: before other collectives of the group.
  void finish_all(Clock::time_point deadline);

 private:
  void add(DeviceFloats gradient);
  void start(const std::vector<DeviceFloats>& bucket);
  void start_on_streams(const std::vector<DeviceFloats>& bucket, Sum& sum);

  std::vector<Action> beside_;  // that reductions run beside
  Transport& world_;
  Device& device_;
  std::vector<int> data_group_;
  bool shards_;  // of the states: each rank needs its part of a sum
  FillingBucket<DeviceFloats> bucket_;
  std::int32_t stage_ = 0;            // that it is of
  std::map<std::int32_t, Sum> sums_;  // by stage
  EmulatedWire* emulated_;
  std::optional<SumsBeside> on_host_;
};

}  // namespace plumb::exec
