// The sum of a stage's gradients over its data-parallel ranks, in buckets beside the last backward or as one behind it,
// and over HSDP's copies.
#pragma once

#include <cstdint>
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
  Bytes bytes;       // that ranks sum once a step
  // Where the action itself reduces gradients: the own part of these, and when it is complete, from the action's start.
  Bytes own = {};
  Seconds reduced = {};
};

// How a stage's gradients are added up once a step.
struct StageReduction {
  // Over the ranks that share a copy of the states, one after the other: from the last backward's start, with what each
  // waits for as a part of its latency; where `reduced` is not empty, or nothing runs beside the backward, from its
  // end.
  std::vector<CollectivePlan> shards = {};
  // When the last backward has reduced each block's gradients itself, from its start.
  std::vector<Seconds> reduced = {};
  // Over HSDP's copies, one after the other on a stream of their own: one behind each of `reduced` and then of
  // `shards`, or one behind all of them. The last one has the backward's last gradients, so that it waits for its end.
  std::vector<CollectivePlan> copies = {};
};

// Bytes of the main gradients of one bucket, of so many data-parallel ranks.
[[nodiscard]] Bytes bucket_bytes(const Software& software, int ranks);

// All-reduces, or reduce-scatters, as `plan_of` has them of so many bytes on every rank, that follow one another on a
// stream of their own, from the start of the last microbatch's backward: a bucket waits, as a part of its latency, for
// the one before it and for the backward of the block that has its last gradient; those that wait for the same are one.
[[nodiscard]] std::vector<CollectivePlan> bucketed_reduction(const std::function<CollectivePlan(Bytes)>& plan_of,
                                                             std::span<const BlockGradients> blocks, Bytes bucket);

// Buckets that wait for the same block: so many of so many bytes each, whose last gradient is there then.
struct FullBuckets {
  Seconds ready;
  Bytes bytes;
  std::int64_t count = 1;
};
[[nodiscard]] std::vector<FullBuckets> full_buckets(std::span<const BlockGradients> blocks, Bytes bucket);

// So many, one behind the other.
[[nodiscard]] CollectivePlan repeated(CollectivePlan plan, std::int64_t times);

// What of it ends behind a backward of this time; 0 where nothing runs beside that.
[[nodiscard]] Seconds exposed(const StageReduction& reduction, Seconds backward);
[[nodiscard]] Seconds exposed(std::span<const CollectivePlan> reduction, Seconds backward);
[[nodiscard]] Seconds time_of(std::span<const CollectivePlan> reduction);

}  // namespace plumb
