// The sum of a rank's gradients over its data-parallel ranks, in buckets beside the last backward of each stage.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/collectives/sums_beside.hpp"

namespace plumb::exec {

// What the plan's software says of its overlap (common/cost/software.hpp, GradientBucket), on hosts. As in PyTorch's
// DDP (torch/csrc/distributed/c10d/reducer.hpp in github.com/pytorch/pytorch) a bucket has whole gradients, in the
// order in which they are complete, and starts when all of its are; the bits are those of one sum behind the backward.
class OverlappedReduction {
 public:
  // `actions`: the rank's list. `data_group`: ranks of `world`, which must outlive this.
  OverlappedReduction(const Plan& plan, const std::vector<Action>& actions, Transport& world,
                      std::vector<int> data_group);

  void begin_step() { reported_.clear(); }

  // Before the W or B at `index` of the list. Throws as Transport::send while the stage runs it.
  void prepare(std::int32_t index, Stage& stage);
  // Behind a compute action: what is left of a bucket starts.
  void complete() { start_bucket(); }
  // Takes on what has come. Never waits.
  void progress() { sums_.progress(); }
  // Waits for all; the bytes of gradients that the stage has reported. Throws as Collectives::all_reduce.
  [[nodiscard]] Bytes finish(std::int32_t stage, Clock::time_point deadline);

 private:
  void add(std::int32_t stage, DeviceFloats gradient);
  void start_bucket();

  std::map<std::int32_t, std::int32_t> last_backwards_;  // stages that are reduced beside them, by place in the list
  Bytes bucket_bytes_;
  std::vector<DeviceFloats> bucket_;
  Bytes in_bucket_;
  std::map<std::int32_t, Bytes> reported_;  // by stage, in this step
  SumsBeside sums_;
};

}  // namespace plumb::exec
