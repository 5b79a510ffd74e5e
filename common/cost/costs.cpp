#include "common/cost/costs.hpp"

#include <algorithm>

#include "common/cluster/machine.hpp"

namespace plumb {
namespace {

void add(ComputeCost& sum, const ComputeCost& block) {
  sum.forward += block.forward;
  sum.input_gradient += block.input_gradient;
  sum.weight_gradient += block.weight_gradient;
  sum.hidden_in_backward += block.hidden_in_backward;
  sum.gradient_reduction += block.gradient_reduction;
  sum.optimizer += block.optimizer;
  sum.parameters += block.parameters;
  sum.parameter_bytes += block.parameter_bytes;
  sum.gradient_bytes += block.gradient_bytes;
  sum.optimizer_bytes += block.optimizer_bytes;
}

}  // namespace

ComputeCost in_sequence(const std::vector<ComputeCost>& blocks) {
  ComputeCost sum;
  // F: what the blocks so far keep, and the worst moment on top of that.
  Bytes worst_forward;
  for (const ComputeCost& block : blocks) {
    add(sum, block);
    sum.kept_bytes += block.kept_bytes;
    sum.kept_for_weight_bytes += block.kept_for_weight_bytes;
    worst_forward = std::max(worst_forward, sum.kept_bytes + block.forward_workspace_bytes);
  }
  // I: the blocks behind hold what W needs, this one and those before it all that F kept. W: those behind hold nothing.
  Bytes held_in_input = sum.kept_bytes;
  Bytes held_in_weight = sum.kept_for_weight_bytes;
  Bytes worst_input = held_in_input;
  Bytes worst_weight = held_in_weight;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    worst_input = std::max(worst_input, held_in_input + block->input_gradient_workspace_bytes);
    worst_weight = std::max(worst_weight, held_in_weight + block->weight_gradient_workspace_bytes);
    held_in_input += block->kept_for_weight_bytes - block->kept_bytes;
    held_in_weight -= block->kept_for_weight_bytes;
  }
  sum.forward_workspace_bytes = worst_forward - sum.kept_bytes;
  sum.input_gradient_workspace_bytes = worst_input - sum.kept_bytes;
  sum.weight_gradient_workspace_bytes = worst_weight - sum.kept_for_weight_bytes;
  return sum;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adam"};
  return names;
}

Seconds backward_time(const ComputeCost& cost) {
  return cost.input_gradient + cost.weight_gradient - cost.hidden_in_backward;
}

Seconds microbatch_time(const ComputeCost& cost, bool recomputed) {
  return cost.forward * (recomputed ? 2 : 1) + backward_time(cost);
}

// The workspace of W, a weight's gradient, does not grow with the tokens. What slices hand to each other is not
// counted: states, and gradients of keys and values.
ComputeCost redone_in_backward(ComputeCost layer, Bytes input) {
  layer.input_gradient += layer.forward;
  layer.input_gradient_workspace_bytes += layer.kept_bytes;
  layer.forward_workspace_bytes += layer.kept_bytes - input;
  layer.kept_bytes = input;
  return layer;
}

ComputeCost per_slice(ComputeCost cost, int slices) {
  for (Seconds* time : {&cost.forward, &cost.input_gradient, &cost.weight_gradient, &cost.hidden_in_backward})
    *time = *time / slices;
  for (Bytes* amount : {&cost.kept_bytes, &cost.kept_for_weight_bytes, &cost.forward_workspace_bytes,
                        &cost.input_gradient_workspace_bytes}) {
    *amount = *amount / slices;
  }
  return cost;
}

Seconds overlapped_time(Seconds first, Seconds second, double hidden) {
  return first + second - std::min(first, second) * hidden;
}

double share_in_pair(Seconds first, Seconds second, double hidden) {
  return (first + second).value > 0 ? overlapped_time(first, second, hidden) / (first + second) : 1;
}

Seconds transfer_time(const TransferCost& cost, Bytes amount) {
  return amount.value == 0 ? cost.latency : cost.latency + amount / cost.bandwidth;
}

TransferCost beyond_machine(TransferCost outside, const SharedWays& shared, int from, int to) {
  const auto apart = [&](int each) { return each > 0 && from / each != to / each; };
  if (apart(shared.ranks_per_leaf)) outside.bandwidth = std::min(outside.bandwidth, shared.leaf);
  if (!apart(shared.ranks_per_site)) return outside;
  outside.bandwidth = std::min(outside.bandwidth, shared.site);
  outside.latency += shared.site_latency;
  return outside;
}

bool on_one_machine(const PipelineCosts& costs, int from, int to) {
  const int each = std::max(1, costs.ranks_per_machine);
  return machine_of(from, each) == machine_of(to, each);
}

TransferCost transfer_between(const PipelineCosts& costs, int from, int to) {
  if (!on_one_machine(costs, from, to)) return beyond_machine(costs.outside, costs.shared, from, to);
  const int each = std::max(1, costs.ranks_per_machine);
  const int under = costs.shared.ranks_per_switch;
  return under > 0 && from % each / under != to % each / under ? costs.across : costs.inside;
}

Bytes boundary_of_stage(const PipelineCosts& costs, int stage) {
  if (costs.boundaries.empty()) return costs.boundary_bytes;
  if (stage == 0) return costs.boundaries.front().before;
  return costs.boundaries[static_cast<std::size_t>(stage) - 1].behind;
}

Seconds boundary_time(const BoundaryCost& boundary) {
  return transfer_time(boundary.way, std::max(boundary.before, boundary.behind));
}

ComputeCost stage_cost(const std::vector<ComputeCost>& blocks, const Split& split, int stage) {
  const BlockRange range = blocks_of_stage(split, stage);
  return in_sequence({blocks.begin() + range.first, blocks.begin() + range.last});
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
