// What ranks that share something have of each other. Internal.
#pragma once

namespace plumb {

// All but a rank's own part, of bytes that so many ranks share: (n−1)/n of them, as a reduce-scatter or an all-gather
// brings each rank; an all-reduce does twice.
[[nodiscard]] inline double of_others(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

}  // namespace plumb
