// The data-parallel ranks that share out the weights or the gradients of a rank's stages, and what moves between them
// within actions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "exec/host/host_copies.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// Of one rank, all of whose stages share it: all ranks of the group go through the same actions in the same order. Two
// implementations: between hosts (HostShardGroup) and on the streams of a device (StreamShardGroup).
class ShardGroup {
 public:
  // `prefetch`: of so many units ahead weights are gathered beside what is computed meanwhile, and gradients reduced as
  // common/schedule/move_order.hpp says; 0: neither. `second_shard`: of a second copy of the weights, which some of the
  // ranks share (ZeRO++); of one part: there is none.
  ShardGroup(StateShard shard, int prefetch, StateShard second_shard = {})
      : shard_(shard), second_shard_(second_shard), prefetch_(prefetch) {}
  ShardGroup(const ShardGroup&) = delete;
  ShardGroup& operator=(const ShardGroup&) = delete;
  virtual ~ShardGroup() = default;

  [[nodiscard]] StateShard shard() const { return shard_; }
  [[nodiscard]] int prefetch() const { return prefetch_; }
  [[nodiscard]] bool has_second_copy() const { return second_shard_.count > 1; }
  [[nodiscard]] StateShard second_shard() const { return second_shard_; }

  // What F gathers, or where there is a second copy, which F leaves, R and I.
  enum class From : std::uint8_t { parts, second_copy };

  // Of weights that are shared out: makes them whole, with the own part, and asks for the others'; those may be read
  // behind `finish_gather`, of one block after the other. What came up of own parts that stand on the host is given
  // back. Both throw RunError where a peer does not come in time, or what is asked for was not planned.
  virtual HostCopies start_gather(const std::vector<WeightPtr>& weights, From from) = 0;
  virtual void finish_gather() = 0;

  // Sums over the group of whole fp32 gradients, of which this rank gets its part, in place. Those of the first
  // `start_sums` that has not ended may be read behind `finish_sums`. Both throw as above.
  virtual void start_sums(const std::vector<at::Tensor>& gradients) = 0;
  virtual void finish_sums() = 0;

 private:
  StateShard shard_;
  StateShard second_shard_;
  int prefetch_;
};

}  // namespace plumb::exec
