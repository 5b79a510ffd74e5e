// The sum of a stage's gradients over its data-parallel ranks, in buckets beside the last backward or as one behind it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/base/units.hpp"
#include "common/cost/collective_time.hpp"
#include "common/cost/software.hpp"

namespace plumb {

// Of one block, in the order of the backward.
struct BlockGradients {
  Seconds backward;  // of the last microbatch: of its B, or of its W where that is an action of its own
  Bytes bytes;       // that ranks sum
};

// Bytes of the main gradients of one bucket, of so many data-parallel ranks.
[[nodiscard]] Bytes bucket_bytes(const Software& software, int ranks);

// All-reduces, or reduce-scatters, as `plan_of` has them of so many bytes on every rank, that follow one another on a
// stream of their own, from the start of the last microbatch's backward: a bucket waits, as a part of its latency, for
// the one before it and for the backward of the block that has its last gradient; those that wait for the same are one.
[[nodiscard]] std::vector<CollectivePlan> bucketed_reduction(const std::function<CollectivePlan(Bytes)>& plan_of,
                                                             std::span<const BlockGradients> blocks, Bytes bucket);

// What of it ends behind a backward of this time.
[[nodiscard]] Seconds exposed(std::span<const CollectivePlan> reduction, Seconds backward);
[[nodiscard]] Seconds time_of(std::span<const CollectivePlan> reduction);

}  // namespace plumb
