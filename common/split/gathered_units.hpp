// Which blocks of a stage actions gather and reduce as one.
#pragma once

#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// How many blocks each such unit of the stage has, in their order: `layers` neighbouring layers, from the stage's first
// one on, of which the last unit may have fewer (fully_shard of FSDP2 takes such a list); the embedding and the head,
// the model's last block, stand alone.
[[nodiscard]] std::vector<int> unit_sizes(const BlockRange& stage, int head, int layers);

}  // namespace plumb
