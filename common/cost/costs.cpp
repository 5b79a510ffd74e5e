#include "common/cost/costs.hpp"

#include <algorithm>

#include "common/schedule/slices.hpp"

namespace plumb {

Seconds overlapped_time(Seconds first, Seconds second, double hidden) {
  return first + second - std::min(first, second) * hidden;
}

double share_in_pair(Seconds first, Seconds second, double hidden) {
  return (first + second).value > 0 ? overlapped_time(first, second, hidden) / (first + second) : 1;
}

Seconds transfer_time(const TransferCost& cost, Bytes amount) {
  return amount.value == 0 ? cost.latency : cost.latency + amount / cost.bandwidth;
}

TransferCost beyond_machine(TransferCost outside, const SharedLinks& shared, int from, int to) {
  const auto apart = [&](int each) { return each > 0 && from / each != to / each; };
  if (apart(shared.ranks_per_leaf)) outside.bandwidth = std::min(outside.bandwidth, shared.leaf);
  if (!apart(shared.ranks_per_site)) return outside;
  outside.bandwidth = std::min(outside.bandwidth, shared.site);
  outside.latency += shared.site_latency;
  return outside;
}

Bytes boundary_of_stage(const PipelineCosts& costs, int stage, int microbatch) {
  if (!costs.slice_tokens.empty()) {
    return bytes_of_tokens(costs.boundary_bytes, of_slice(costs.slice_tokens, microbatch),
                           std::ranges::max(costs.slice_tokens));
  }
  if (costs.boundaries.empty()) return costs.boundary_bytes;
  if (stage == 0) return costs.boundaries.front().before;
  return costs.boundaries[static_cast<std::size_t>(stage) - 1].behind;
}

std::vector<Bytes> message_bytes(const PipelineCosts& costs) {
  std::vector<Bytes> bytes;
  const std::size_t kinds = std::max<std::size_t>(1, costs.slice_tokens.size());
  for (std::size_t slice = 0; slice < kinds; ++slice) {
    bytes.push_back(boundary_of_stage(costs, 0, static_cast<int>(slice)));
  }
  return bytes;
}

Seconds gathering_time(const PipelineCosts& costs, int microbatch) {
  if (costs.slice_gathering.empty()) return {};
  return of_slice(costs.slice_gathering, microbatch);
}

Seconds boundary_time(const BoundaryCost& boundary) {
  return transfer_time(boundary.way, std::max(boundary.before, boundary.behind));
}

std::span<const ComputeCost> stage_blocks(const std::vector<ComputeCost>& blocks, const Split& split, int stage) {
  const BlockRange range = blocks_of_stage(split, stage);
  return {blocks.begin() + range.first, blocks.begin() + range.last};
}

ComputeCost stage_cost(const std::vector<ComputeCost>& blocks, const Split& split, int stage) {
  const std::span<const ComputeCost> own = stage_blocks(blocks, split, stage);
  return in_sequence({own.begin(), own.end()});
}

PipelineCosts even_costs(int stages, const EvenTimes& times) {
  const double share = times.chunks;
  // Nothing is carried, so any bandwidth will do; simulators want a positive one.
  const TransferCost way{.latency = times.hop, .bandwidth = {1e9}};
  PipelineCosts costs;
  ComputeCost stage;
  stage.forward = times.forward / share;
  stage.input_gradient = times.input_gradient / share;
  stage.weight_gradient = times.weight_gradient / share;
  costs.stages.assign(static_cast<std::size_t>(stages), stage);
  costs.inside = way;
  costs.outside = way;
  costs.ranks_per_machine = stages;
  costs.hidden_in_pairs = times.hidden_in_pairs;
  costs.provenance = "given times, every stage alike";
  return costs;
}

}  // namespace plumb
