#include "common/cost/gradient_buckets.hpp"

#include <algorithm>

namespace plumb {
CollectivePlan repeated(CollectivePlan plan, std::int64_t times) {
  const auto factor = static_cast<double>(times);
  for (CollectivePhase& phase : plan.phases) {
    phase.latency = phase.latency * factor;
    phase.inside *= factor;
    phase.outside *= factor;
    phase.time = phase.time * factor;
  }
  return plan;
}

Bytes bucket_bytes(const Software& software, int ranks) {
  const GradientBucket& bucket = software.data_bucket;
  if (bucket.bytes > Bytes{}) return bucket.bytes;
  constexpr std::int64_t most = std::int64_t{1} << 40;  // whatever a plan's file says: products fit 63 bits
  const std::int64_t parameters = std::max(
      {std::int64_t{1}, std::min(bucket.parameters, most), std::min(bucket.parameters_per_rank, most) * ranks});
  return {parameters * element_bytes(software.gradients)};
}

std::vector<FullBuckets> full_buckets(std::span<const BlockGradients> blocks, Bytes bucket) {
  std::vector<FullBuckets> buckets;
  Seconds ready;
  Bytes made;
  for (const BlockGradients& block : blocks) {
    ready += block.backward;
    made += block.bytes;
    const std::int64_t count = made.value / bucket.value;
    if (count > 0) buckets.push_back({ready, bucket, count});
    made = {made.value % bucket.value};
  }
  if (made > Bytes{}) buckets.push_back({ready, made});
  return buckets;
}

std::vector<CollectivePlan> bucketed_reduction(const std::function<CollectivePlan(Bytes)>& plan_of,
                                               std::span<const BlockGradients> blocks, Bytes bucket) {
  std::vector<CollectivePlan> reduction;
  const CollectivePlan full = plan_of(bucket);
  Seconds free;
  for (const FullBuckets& of_block : full_buckets(blocks, bucket)) {
    CollectivePlan plan = repeated(of_block.bytes == bucket ? full : plan_of(of_block.bytes), of_block.count);
    const Seconds waits = std::max(of_block.ready - free, Seconds{});
    plan.phases.front().latency += waits;
    plan.phases.front().time += waits;
    free += time_of(plan);
    reduction.push_back(plan);
  }
  return reduction;
}

Seconds time_of(std::span<const CollectivePlan> reduction) {
  Seconds sum;
  for (const CollectivePlan& plan : reduction) sum += time_of(plan);
  return sum;
}

Seconds exposed(std::span<const CollectivePlan> reduction, Seconds backward) {
  return std::max(time_of(reduction) - backward, Seconds{});
}

Seconds exposed(const StageReduction& reduction, Seconds backward) {
  if (reduction.copies.empty() && reduction.reduced.empty()) return exposed(reduction.shards, backward);
  std::vector<Seconds> summed = reduction.reduced;
  Seconds free = reduction.reduced.empty() ? Seconds{} : backward;
  for (const CollectivePlan& plan : reduction.shards) summed.push_back(free += time_of(plan));
  Seconds end;
  for (std::size_t i = 0; i < reduction.copies.size(); ++i) {
    const std::size_t left = reduction.copies.size() - i;  // this one and those behind it
    if (left <= summed.size()) end = std::max(end, summed[summed.size() - left]);
    if (left == 1) end = std::max(end, backward);
    end += time_of(reduction.copies[i]);
  }
  return std::max(std::max(free, end) - backward, Seconds{});
}

}  // namespace plumb
