#include "common/cost/gradient_buckets.hpp"

#include <algorithm>

namespace plumb {
namespace {

// So many, one behind the other.
CollectivePlan repeated(CollectivePlan plan, double times) {
  for (CollectivePhase& phase : plan.phases) {
    phase.latency = phase.latency * times;
    phase.inside *= times;
    phase.outside *= times;
    phase.time = phase.time * times;
  }
  return plan;
}

}  // namespace

Bytes bucket_bytes(const Software& software, int ranks) {
  const GradientBucket& bucket = software.data_bucket;
  if (bucket.bytes > Bytes{}) return bucket.bytes;
  constexpr std::int64_t most = std::int64_t{1} << 40;  // whatever a plan's file says: products fit 63 bits
  const std::int64_t parameters = std::max(
      {std::int64_t{1}, std::min(bucket.parameters, most), std::min(bucket.parameters_per_rank, most) * ranks});
  return {parameters * element_bytes(software.gradients)};
}

std::vector<CollectivePlan> bucketed_reduction(const std::function<CollectivePlan(Bytes)>& plan_of,
                                               std::span<const BlockGradients> blocks, Bytes bucket) {
  std::vector<CollectivePlan> reduction;
  const CollectivePlan full = plan_of(bucket);
  Seconds ready;
  Seconds free;
  const auto add = [&](CollectivePlan plan) {
    const Seconds waits = std::max(ready - free, Seconds{});
    plan.phases.front().latency += waits;
    plan.phases.front().time += waits;
    free += time_of(plan);
    reduction.push_back(plan);
  };
  Bytes made;
  for (const BlockGradients& block : blocks) {
    ready += block.backward;
    made += block.bytes;
    const std::int64_t count = made.value / bucket.value;
    if (count > 0) add(repeated(full, static_cast<double>(count)));
    made = {made.value % bucket.value};
  }
  if (made > Bytes{}) add(plan_of(made));
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

}  // namespace plumb
