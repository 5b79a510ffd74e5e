// Weights and gradients of which a data-parallel rank keeps its part.
#pragma once

#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// From now on the weight holds its part alone. Of an fp32 gradient: zeros.
void share_out_value(Weight& weight, const StateShard& shard);
void share_out_gradient(Weight& weight, const StateShard& shard);

// The whole value, of which the own part is there and the others' are not yet; and no longer.
void make_whole(Weight& weight, const StateShard& shard);
inline void let_go(Weight& weight) { weight.value.reset(); }

}  // namespace plumb::exec
