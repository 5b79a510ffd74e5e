// Adds what the ranks of a group give, element by element in pairs of neighbours: the bits of every host collective.
#pragma once

#include <cstddef>
#include <span>

#include "common/base/units.hpp"

namespace plumb::exec {

// Throws RunError for a type that is not added on the host, and for bytes that are no whole elements.
void require_addable(std::size_t bytes, ElementType type);

// sum[i] = ((parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i])) + …: neighbours, then their sums, and so on, the
// odd one out carried up (pairwise summation). So it has the bits of the sum of the sums of 2, 4, 8 … neighbours each
// (but for bf16, which those would have rounded): whether a group is summed in one step, or first inside its parts.
// As many bytes of each part as `sum` has. `sum` may be one of the parts. fp32 and fp64 are added as they are; bf16 in
// fp32, rounded once, at the end, to the nearest (ties to even). A sum of one part is that part, bit for bit.
// Precondition: addable.
void add_in_pairs(std::span<const std::byte* const> parts, ElementType type, std::span<std::byte> sum);

}  // namespace plumb::exec
