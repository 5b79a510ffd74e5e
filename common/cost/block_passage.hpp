// How long an action takes for its blocks while a stream moves what they gather and reduce beside their computing.
#pragma once

#include <span>
#include <vector>

#include "common/base/units.hpp"

namespace plumb {

struct PassedBlock {
  Seconds computing = {};
  Seconds gathering = {};  // before it
  Seconds reducing = {};   // behind it
  Seconds copying = {};    // of its neighbours, over the host's link, while it computes
};

struct BlockPassage {
  std::vector<Seconds> waits;    // by block: from the end of its computing until the next one begins
  Seconds behind = {};           // from the last one's until all is reduced
  std::vector<Seconds> reduced;  // by block: when its reduction ends
};

// `blocks`: in the order of the action; the first one begins, gathered, at `begun`. Moves go as MoveOrder has them for
// `prefetch` ≥ 1: each starts when it is issued and the one before it has ended. A block begins when the one before has
// computed, what MoveOrder says has ended, and so has what was copied beside that one. With a depth of one, t the
// computing, g the gathering, r the reducing, h the copying of a block:
//   Σ max(t_i, g_{i+1} + r_{i−1}, h_i) + r_{n−1}
[[nodiscard]] BlockPassage passage(std::span<const PassedBlock> blocks, int prefetch, Seconds begun = {});

}  // namespace plumb
