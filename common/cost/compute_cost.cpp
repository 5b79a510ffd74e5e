#include "common/cost/compute_cost.hpp"

#include <algorithm>

namespace plumb {
namespace {

ActionTimes mean_times(const ComputeCost& cost) {
  return {cost.forward, cost.input_gradient, cost.weight_gradient, cost.hidden_in_backward};
}

void operator+=(ActionTimes& sum, const ActionTimes& times) {
  sum.forward += times.forward;
  sum.input_gradient += times.input_gradient;
  sum.weight_gradient += times.weight_gradient;
  sum.hidden_in_backward += times.hidden_in_backward;
}

// `sum` without this block yet; where either has slices that differ, the other's are its mean.
void add_slices(ComputeCost& sum, const ComputeCost& block) {
  if (sum.slices.empty() && block.slices.empty()) return;
  if (sum.slices.empty()) sum.slices.assign(block.slices.size(), mean_times(sum));
  for (std::size_t i = 0; i < sum.slices.size(); ++i) {
    sum.slices[i] += block.slices.empty() ? mean_times(block) : block.slices[i];
  }
}

void add(ComputeCost& sum, const ComputeCost& block) {
  add_slices(sum, block);
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
  // B: the blocks behind hold nothing, those before it all that F kept.
  Bytes held_in_backward = sum.kept_bytes;
  Bytes worst_backward = held_in_backward;
  // I: the blocks behind hold what W needs, this one and those before it all that F kept. W: those behind hold nothing.
  Bytes held_in_input = sum.kept_bytes;
  Bytes held_in_weight = sum.kept_for_weight_bytes;
  Bytes worst_input = held_in_input;
  Bytes worst_weight = held_in_weight;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    worst_input = std::max(worst_input, held_in_input + block->input_gradient_workspace_bytes);
    worst_weight = std::max(worst_weight, held_in_weight + block->weight_gradient_workspace_bytes);
    worst_backward = std::max(worst_backward, held_in_backward + backward_workspace(*block));
    held_in_backward -= block->kept_bytes;
    held_in_input += block->kept_for_weight_bytes - block->kept_bytes;
    held_in_weight -= block->kept_for_weight_bytes;
  }
  sum.forward_workspace_bytes = worst_forward - sum.kept_bytes;
  sum.input_gradient_workspace_bytes = worst_input - sum.kept_bytes;
  sum.weight_gradient_workspace_bytes = worst_weight - sum.kept_for_weight_bytes;
  const Bytes of_backward = worst_backward - sum.kept_bytes;
  if (of_backward != backward_workspace(sum)) sum.backward_workspace_bytes = of_backward;
  return sum;
}

Bytes backward_workspace(const ComputeCost& cost) {
  return cost.backward_workspace_bytes.value_or(
      std::max(cost.input_gradient_workspace_bytes,
               cost.kept_for_weight_bytes + cost.weight_gradient_workspace_bytes - cost.kept_bytes));
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adamw"};
  return names;
}

ActionTimes times_of(const ComputeCost& cost, int microbatch) {
  if (cost.slices.empty() || microbatch < 0) return mean_times(cost);
  return cost.slices[static_cast<std::size_t>(microbatch) % cost.slices.size()];
}

Seconds backward_time(const ActionTimes& times) {
  return times.input_gradient + times.weight_gradient - times.hidden_in_backward;
}

Seconds backward_time(const ComputeCost& cost) { return backward_time(mean_times(cost)); }

Seconds microbatch_time(const ComputeCost& cost, bool recomputed) {
  return cost.forward * (recomputed ? 2 : 1) + backward_time(cost);
}

ComputeCost redone_in_backward(ComputeCost layer, Bytes input) {
  layer.input_gradient += layer.forward;
  for (ActionTimes& slice : layer.slices) slice.input_gradient += slice.forward;
  layer.input_gradient_workspace_bytes += layer.kept_bytes - input;
  layer.forward_workspace_bytes += layer.kept_bytes - input;
  if (layer.backward_workspace_bytes) *layer.backward_workspace_bytes += layer.kept_bytes - input;
  layer.kept_bytes = input;
  return layer;
}

ComputeCost backward_in_two(ComputeCost cost) {
  cost.hidden_in_backward = {};
  for (ActionTimes& slice : cost.slices) slice.hidden_in_backward = {};
  return cost;
}

// What slices hand to each other is not counted: states, and gradients of keys and values.
ComputeCost of_slices(const std::vector<ComputeCost>& slices) {
  ComputeCost cost = slices.front();
  const bool alike = std::ranges::all_of(slices, [&](const ComputeCost& slice) { return slice == slices.front(); });
  if (alike) return cost;
  const auto count = static_cast<std::int64_t>(slices.size());
  const auto mean_seconds = [&](Seconds ComputeCost::*time) {
    Seconds sum;
    for (const ComputeCost& slice : slices) sum += slice.*time;
    cost.*time = sum / static_cast<double>(count);
  };
  const auto mean_bytes = [&](Bytes ComputeCost::*bytes) {
    Bytes sum;
    for (const ComputeCost& slice : slices) sum += slice.*bytes;
    cost.*bytes = sum / count;
  };
  const auto largest = [&](Bytes ComputeCost::*bytes) {
    for (const ComputeCost& slice : slices) cost.*bytes = std::max(cost.*bytes, slice.*bytes);
  };
  for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient,
                          &ComputeCost::hidden_in_backward}) {
    mean_seconds(time);
  }
  for (const auto bytes : {&ComputeCost::kept_bytes, &ComputeCost::kept_for_weight_bytes}) mean_bytes(bytes);
  for (const auto bytes : {&ComputeCost::forward_workspace_bytes, &ComputeCost::input_gradient_workspace_bytes,
                           &ComputeCost::weight_gradient_workspace_bytes}) {
    largest(bytes);
  }
  if (cost.backward_workspace_bytes) {
    for (const ComputeCost& slice : slices) {
      cost.backward_workspace_bytes = std::max(*cost.backward_workspace_bytes, backward_workspace(slice));
    }
  }
  for (const ComputeCost& slice : slices) cost.slices.push_back(mean_times(slice));
  return cost;
}

// The workspace of W, a weight's gradient, does not grow with the tokens.
ComputeCost per_slice(ComputeCost cost, int slices) {
  for (Seconds* time : {&cost.forward, &cost.input_gradient, &cost.weight_gradient, &cost.hidden_in_backward})
    *time = *time / slices;
  for (Bytes* amount : {&cost.kept_bytes, &cost.kept_for_weight_bytes, &cost.forward_workspace_bytes,
                        &cost.input_gradient_workspace_bytes}) {
    *amount = *amount / slices;
  }
  if (cost.backward_workspace_bytes) cost.backward_workspace_bytes = *cost.backward_workspace_bytes / slices;
  return cost;
}

}  // namespace plumb
