// The data-parallel ranks that share out the weights or the gradients of a rank's stages, and what moves between them
// within actions.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/units.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/transport/collectives/gathers_beside.hpp"
#include "exec/transport/collectives/sums_beside.hpp"

namespace plumb::exec {

// Of one rank, all of whose stages share it: all ranks of the group go through the same actions in the same order. Of
// tensors of the host.
class ShardGroup {
 public:
  struct Place {
    std::vector<int> ranks = {};  // of the run, ascending
    bool beside = false;          // what moves goes on beside what is computed meanwhile
    Seconds patience{60};         // how long this rank waits for its peers
  };
  // `transport` must outlive this.
  ShardGroup(Transport& transport, Place place);

  [[nodiscard]] StateShard shard() const { return shard_; }
  [[nodiscard]] bool beside() const { return place_.beside; }

  // Of weights that are shared out: makes them whole, with the own part, and asks for the others'; those come with
  // `finish_gather`, of one block after the other. Both throw as GathersBeside.
  void start_gather(const std::vector<WeightPtr>& weights);
  void finish_gather();

  // Sums over the group of whole fp32 gradients, of which this rank gets its part, in place. Throw as SumsBeside.
  void start_sum(const at::Tensor& gradient);
  void finish_sums();

 private:
  [[nodiscard]] Clock::time_point deadline() const;

  Place place_;
  StateShard shard_;
  GathersBeside gathers_;
  SumsBeside sums_;
};

}  // namespace plumb::exec
