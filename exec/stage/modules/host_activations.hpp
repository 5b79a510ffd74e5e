// What blocks keep of a microbatch between F and I or B, in the host's memory in the meantime.
#pragma once

#include <map>
#include <utility>

#include "exec/host/host_copies.hpp"
#include "exec/stage/modules/block.hpp"

namespace plumb::exec {

// Of ranks on hosts: memory of the host that counts apart stands for it (exec/host/memory.hpp).
class HostActivations {
 public:
  // Behind the block's F, whose pass listed what it keeps. All that the graph alone holds is copied there, and gone
  // here. Nothing of a block without a graph.
  void put(Block& block, int microbatch);
  // Before the block's I: the same bytes are here again, and gone there.
  void bring_back(Block& block, int microbatch);

  // Since the last `begin`.
  void begin() { copied_ = {}; }
  [[nodiscard]] const HostCopies& copied() const { return copied_; }
  [[nodiscard]] bool empty() const { return there_.empty(); }

 private:
  struct Kept {
    EvictedTensors tensors;
    Parcel parts;
  };
  // Replaces each part by its copy in memory that `make` gives.
  void copy(Parcel& parts, std::shared_ptr<void> (*make)(std::size_t));

  std::map<std::pair<const Block*, int>, Kept> there_;
  HostCopies copied_;
};

}  // namespace plumb::exec
