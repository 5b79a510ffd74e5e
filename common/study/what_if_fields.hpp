// Tables of the fields of a what-if file.
#pragma once

#include <cstdint>

#include "common/base/document/field.hpp"

namespace plumb {

inline constexpr double slowest_factor = 1000;  // times as slow as planned

[[nodiscard]] const FieldBlock& variant_block();
// Machine numbers that a variant may replace, below `prefix` ("", "inside.").
[[nodiscard]] const FieldBlock& machine_changes_block();
[[nodiscard]] const FieldBlock& cluster_changes_block();

}  // namespace plumb
