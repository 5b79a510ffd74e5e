#include "common/search/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb {
namespace {

constexpr double rounding = 1 - 1e-12;  // sums in another order

// Whether stages that take no more than `limit` each reach the end.
bool reaches_end(const std::vector<ComputeCost>& blocks, const BoundedFamily& family, Bytes limit) {
  const auto stages = static_cast<std::size_t>(family.stages);
  std::size_t start = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::int64_t held = family.held.empty() ? 1 : family.held[stage];
    const std::size_t last = blocks.size() - (stages - stage - 1);  // the stages behind have a block each
    std::size_t end = start;
    Bytes taken;
    while (end < last) {
      taken += states_held(blocks[end]) + blocks[end].kept_bytes * (family.redone ? 0 : held);
      if (taken > limit) break;
      ++end;
    }
    if (end == start) return false;
    start = end;
  }
  return start == blocks.size();
}

}  // namespace

Seconds least_time(const std::vector<ComputeCost>& blocks, const BoundedFamily& family) {
  Seconds work;
  Seconds optimizer;
  Seconds heaviest;
  double passing = 1;
  for (const ComputeCost& block : blocks) {
    const Seconds time = microbatch_time(block, family.redone);
    work += time;
    optimizer += block.optimizer + block.host_moves.updating;
    heaviest = std::max(heaviest, time);
    const ActionTimes ends = times_of(block, 0);  // the first F and the last B are of a first slice
    const Seconds before_next = family.splits_backward ? ends.forward : ends.forward + backward_time(ends);
    if (time.value > 0) passing = std::min(passing, before_next / time);
  }
  const auto passes = static_cast<double>(family.passes);
  const BoundedParts& parts = family.parts;
  Seconds least = std::max((work * passes + optimizer) / static_cast<double>(family.ranks) + parts.optimizer,
                           heaviest * (passes / static_cast<double>(family.replicas)));
  least += parts.passing * passes;
  if (family.stages == family.ranks && family.replicas == 1 && passing > 0) {
    const double through = -std::expm1(family.ranks * std::log1p(-passing / passes));
    if (through > 0) least = std::max(least, work * (passing / through) + parts.in_between * passes);
  }
  return (least * least_of_pairs(family.hidden_in_pairs) + family.overhead) * rounding;
}

namespace {

Bytes least_of_blocks(const std::vector<ComputeCost>& blocks, const BoundedFamily& family) {
  Bytes all;
  for (const ComputeCost& block : blocks) all += states_held(block) + (family.redone ? Bytes{} : block.kept_bytes);
  Bytes low = all / family.ranks;
  if (family.stages != family.ranks || family.replicas > 1) return low;
  // `low` is too little or the answer, `high` is enough.
  std::int64_t most = 1;
  for (const int held : family.held) most = std::max<std::int64_t>(most, held);
  Bytes high = all * most;
  if (reaches_end(blocks, family, low)) return low;
  while (high - low > Bytes{1}) {
    const Bytes middle = low + (high - low) / 2;
    (reaches_end(blocks, family, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

Bytes least_memory(const std::vector<ComputeCost>& blocks, const BoundedFamily& family) {
  return least_of_blocks(blocks, family) + family.parts.states;
}

}  // namespace plumb
