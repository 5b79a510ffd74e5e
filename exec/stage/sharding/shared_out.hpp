// Weights and gradients of which a data-parallel rank keeps its part.
#pragma once

#include <cstddef>
#include <span>

#include "exec/host/host_copies.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// From now on the weight holds its part alone, in the host's memory that counts apart if it is `on_host`. Of an fp32
// gradient: zeros. Of a second copy: nothing yet.
void share_out_value(Weight& weight, const StateShard& shard, bool on_host = false);
void share_out_gradient(Weight& weight, const StateShard& shard);
void share_out_second_copy(Weight& weight, const StateShard& shard);

// The whole value, of which the own part, `part`, is there and the others' are not yet; and no longer. With the first
// what came up of it, where the part stands on the host.
HostCopies make_whole(Weight& weight, const at::Tensor& part, const StateShard& shard);
inline HostCopies make_whole(Weight& weight, const StateShard& shard) {
  return make_whole(weight, weight.own_value, shard);
}
inline void let_go(Weight& weight) { weight.value.reset(); }

// Of an own part as int8, and made of that again.
void quantise_part(const at::Tensor& part, std::span<std::byte> into);
void dequantise_part(std::span<const std::byte> from, const at::Tensor& part);
// What ranks that share a weight out in so many parts have of it when all have travelled as int8: in place.
void round_in_parts(const at::Tensor& whole, int parts);

}  // namespace plumb::exec
