// Goes through a stage's blocks in one action: the weights of each are gathered, the gradients of each reduced.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "exec/stage/sharding/shard_group.hpp"

namespace plumb::exec {

// Weights that ranks share out, of F, R or I (arXiv 2304.11277, sections 3.2 and 3.3): each block's are whole between
// `enter` and `leave`, while those of the next ones are on their way, as many as the group gathers ahead.
class BlockGathers {
 public:
  using Weights = std::vector<WeightPtr>;

  // `blocks`: in the order in which the action comes to them. Without a group there is nothing to gather.
  BlockGathers(ShardGroup* group, ShardGroup::From from, std::vector<const Weights*> blocks)
      : group_(group), from_(from), blocks_(std::move(blocks)) {}

  // Both throw as ShardGroup does.
  void enter();
  void leave();
  // So far, of own parts that stand on the host.
  [[nodiscard]] const HostCopies& copied() const { return copied_; }

 private:
  ShardGroup* group_;
  ShardGroup::From from_;
  std::vector<const Weights*> blocks_;
  std::size_t started_ = 0;
  std::size_t left_ = 0;
  HostCopies copied_;
};

// Gradients that ranks share out, of W or B (ZeRO, arXiv 1910.02054, section 5.2): those of a block are whole from
// `make` on; `reduce` sums them over the group, adds the own part to the step's, and lets go of the whole. Where the
// group moves beside what is computed that ends with a later block's, of which reductions_under_way
// (common/cost/move_order.hpp) says how many there may be, or with `finish`.
class BlockReductions {
 public:
  // Without a group there is nothing to reduce. Of weights whose gradients are not shared out it does nothing.
  explicit BlockReductions(ShardGroup* group) : group_(group) {}

  void make(const std::vector<WeightPtr>& weights);
  void reduce(const std::vector<WeightPtr>& weights);  // throws as ShardGroup does, as the next
  void finish();

 private:
  void finish_first();

  ShardGroup* group_;
  std::deque<std::vector<WeightPtr>> under_way_;  // by block
};

}  // namespace plumb::exec
