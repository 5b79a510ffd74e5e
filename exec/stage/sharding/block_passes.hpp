// Goes through a stage's blocks in one action: the weights of each are gathered, the gradients of each reduced.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "exec/stage/sharding/shard_group.hpp"

namespace plumb::exec {

// Weights that ranks share out, of F, R or I (arXiv 2304.11277, sections 3.2 and 3.3): each unit's are whole from
// before its first block until behind its last, while those of the next ones are on their way, as many as the group
// gathers ahead.
class BlockGathers {
 public:
  // Of neighbouring blocks.
  struct Unit {
    std::vector<WeightPtr> weights = {};
    std::size_t blocks = 0;
  };

  // `units`: in the order in which the action comes to them. Without a group there is nothing to gather.
  BlockGathers(ShardGroup* group, ShardGroup::From from, std::vector<Unit> units)
      : group_(group), from_(from), units_(std::move(units)) {}

  // Before each block, and behind. Both throw as ShardGroup does.
  void enter();
  void leave();
  // So far, of own parts that stand on the host.
  [[nodiscard]] const HostCopies& copied() const { return copied_; }

 private:
  ShardGroup* group_;
  ShardGroup::From from_;
  std::vector<Unit> units_;
  std::size_t started_ = 0;
  std::size_t left_ = 0;
  std::size_t passed_ = 0;  // blocks of the unit behind these
  HostCopies copied_;
};

// Gradients that ranks share out, of W or B (ZeRO, arXiv 1910.02054, section 5.2): those of a block are whole from
// `make` on; with the last block of its unit `reduce` sums the unit's over the group, adds the own part to the step's,
// and lets go of the whole. Where the group moves beside what is computed that ends with a later unit's, of which
// reductions_under_way (common/schedule/move_order.hpp) says how many there may be, or with `finish`.
class BlockReductions {
 public:
  // `units`: how many blocks each has, in the order of the action. Without a group there is nothing to reduce. Of
  // weights whose gradients are not shared out it does nothing.
  BlockReductions(ShardGroup* group, std::vector<int> units) : group_(group), units_(std::move(units)) {}

  void make(const std::vector<WeightPtr>& weights);
  void reduce(const std::vector<WeightPtr>& weights);  // throws as ShardGroup does, as the next
  void finish();

 private:
  void finish_first();

  ShardGroup* group_;
  std::vector<int> units_;
  std::size_t unit_ = 0;
  int passed_ = 0;                                // blocks of that unit
  std::vector<WeightPtr> complete_;               // of these
  std::deque<std::vector<WeightPtr>> under_way_;  // by unit
};

}  // namespace plumb::exec
