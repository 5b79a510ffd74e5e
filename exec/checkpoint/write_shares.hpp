// Who writes which elements of a tensor that several ranks hold: each element once.
#pragma once

#include <cstdint>
#include <vector>

#include "common/placement/index_ranges.hpp"

namespace plumb::exec {

// `held`: by holder, what it has. By holder what it writes, ascending: elements that the same holders have are shared
// out among them as evenly as can be, in parts of at least `at_least` elements where there are so many, beginning with
// the holder that `turn` says, so that small tensors do not all fall to the first.
[[nodiscard]] std::vector<IndexRanges> write_shares(const std::vector<IndexRanges>& held, std::int64_t at_least,
                                                    std::size_t turn);

}  // namespace plumb::exec
