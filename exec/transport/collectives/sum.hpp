// Adds what the ranks of a group give, element by element in the order of the group: the bits of every host collective.
#pragma once

#include <cstddef>
#include <span>

#include "common/base/units.hpp"

namespace plumb::exec {

// Throws RunError for a type that is not added on the host, and for bytes that are no whole elements.
void require_addable(std::size_t bytes, ElementType type);

// sum[i] = parts[0][i] + parts[1][i] + …; as many bytes of each part as `sum` has. `sum` may be one of the parts.
// fp32 and fp64 are added as they are; bf16 in fp32, rounded once, at the end, to the nearest (ties to even). A sum of
// one part is that part, bit for bit. Precondition: addable.
void add_in_order(std::span<const std::byte* const> parts, ElementType type, std::span<std::byte> sum);

}  // namespace plumb::exec
