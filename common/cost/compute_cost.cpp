#include "common/cost/compute_cost.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "common/cost/moves_in_sequence.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {

Bytes weight_gradient_in_backward(const SliceBytes& bytes) {
  return bytes.kept_for_weight + bytes.weight_gradient_workspace + bytes.gradients_left - bytes.gradients_taken -
         bytes.kept;
}

Bytes backward_workspace(const SliceBytes& bytes) {
  return bytes.backward_workspace.value_or(
      std::max(bytes.input_gradient_workspace, weight_gradient_in_backward(bytes)));
}

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
  sum.weight_gathering += block.weight_gathering;
  sum.gathered_bytes += block.gathered_bytes;
  sum.parameters += block.parameters;
  sum.parameter_bytes += block.parameter_bytes;
  sum.gradient_bytes += block.gradient_bytes;
  sum.tensor_gradient_bytes += block.tensor_gradient_bytes;
  for (const TensorSum& more : block.grid_sums) add_to(sum.grid_sums, more);
  sum.second_gradient_bytes += block.second_gradient_bytes;
  sum.optimizer_bytes += block.optimizer_bytes;
  sum.data_moves += block.data_moves;
  sum.host_moves += block.host_moves;
  sum.activation_moves += block.activation_moves;
  sum.parameter_moves += block.parameter_moves;
}

SliceBytes own_bytes(const ComputeCost& cost) {
  return {cost.kept_bytes,
          cost.kept_for_weight_bytes,
          cost.forward_workspace_bytes,
          cost.input_gradient_workspace_bytes,
          cost.weight_gradient_workspace_bytes,
          cost.backward_workspace_bytes,
          {},
          {}};
}

// Means of what is kept, the largest of workspaces.
SliceBytes together(const std::vector<SliceBytes>& slices) {
  SliceBytes sum;
  for (const SliceBytes& slice : slices) {
    sum.kept += slice.kept;
    sum.kept_for_weight += slice.kept_for_weight;
    for (const auto workspace : {&SliceBytes::forward_workspace, &SliceBytes::input_gradient_workspace,
                                 &SliceBytes::weight_gradient_workspace}) {
      sum.*workspace = std::max(sum.*workspace, slice.*workspace);
    }
  }
  const auto is_known = [](const SliceBytes& slice) { return slice.backward_workspace.has_value(); };
  if (std::ranges::any_of(slices, is_known)) {
    Bytes most;
    for (const SliceBytes& slice : slices) most = std::max(most, backward_workspace(slice));
    sum.backward_workspace = most;
  }
  const auto count = static_cast<std::int64_t>(slices.size());
  sum.kept = sum.kept / count;
  sum.kept_for_weight = sum.kept_for_weight / count;
  return sum;
}

SliceBytes bytes_in_sequence(const std::vector<SliceBytes>& blocks) {
  SliceBytes sum;
  // F: what the blocks so far keep, and the worst moment on top of that.
  Bytes worst_forward;
  for (const SliceBytes& block : blocks) {
    sum.kept += block.kept;
    sum.kept_for_weight += block.kept_for_weight;
    sum.gradients_taken += block.gradients_taken;
    sum.gradients_left += block.gradients_left;
    worst_forward = std::max(worst_forward, sum.kept + block.forward_workspace);
  }
  // B: the blocks behind hold only what they leave to earlier slices, those before it all that F kept.
  Bytes held_in_backward = sum.kept;
  Bytes worst_backward = held_in_backward;
  // I: the blocks behind hold what W needs, this one and those before it all that F kept. W: those behind hold nothing.
  Bytes held_in_input = sum.kept;
  Bytes held_in_weight = sum.kept_for_weight;
  Bytes worst_input = held_in_input;
  Bytes worst_weight = held_in_weight;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    worst_input = std::max(worst_input, held_in_input + block->input_gradient_workspace);
    worst_weight = std::max(worst_weight, held_in_weight + block->weight_gradient_workspace);
    worst_backward = std::max(worst_backward, held_in_backward + backward_workspace(*block));
    const Bytes left = block->gradients_left - block->gradients_taken;
    held_in_backward += left - block->kept;
    held_in_input += left + block->kept_for_weight - block->kept;
    held_in_weight -= block->kept_for_weight;
  }
  sum.forward_workspace = worst_forward - sum.kept;
  sum.input_gradient_workspace = worst_input - sum.kept;
  sum.weight_gradient_workspace = worst_weight - sum.kept_for_weight;
  const Bytes of_backward = worst_backward - sum.kept;
  if (of_backward != backward_workspace(sum)) sum.backward_workspace = of_backward;
  return sum;
}

}  // namespace

ComputeCost in_sequence(const std::vector<ComputeCost>& blocks) {
  ComputeCost sum;
  std::size_t slices = 0;
  std::vector<SliceBytes> bytes;
  for (const ComputeCost& block : blocks) {
    add(sum, block);
    bytes.push_back(own_bytes(block));
    slices = std::max(slices, block.slice_bytes.size());
  }
  const bool beside = move_beside(blocks);
  if (beside) add_waits(sum, blocks);
  if (beside && slices == 0) add_neighbours(bytes, blocks);
  for (std::size_t slice = 0; slice < slices; ++slice) {
    for (std::size_t n = 0; n < blocks.size(); ++n) bytes[n] = bytes_of(blocks[n], static_cast<int>(slice));
    if (beside) add_neighbours(bytes, blocks);
    sum.slice_bytes.push_back(bytes_in_sequence(bytes));
  }
  set_bytes(sum, slices == 0 ? bytes_in_sequence(bytes) : together(sum.slice_bytes));
  return sum;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adamw"};
  return names;
}

Bytes backward_workspace(const ComputeCost& cost) { return backward_workspace(own_bytes(cost)); }

ActionTimes times_of(const ComputeCost& cost, int microbatch) {
  if (cost.slices.empty() || microbatch < 0) return mean_times(cost);
  return of_slice(cost.slices, microbatch);
}

SliceBytes bytes_of(const ComputeCost& cost, int microbatch) {
  if (cost.slice_bytes.empty() || microbatch < 0) return own_bytes(cost);
  return of_slice(cost.slice_bytes, microbatch);
}

void set_bytes(ComputeCost& cost, const SliceBytes& bytes) {
  cost.kept_bytes = bytes.kept;
  cost.kept_for_weight_bytes = bytes.kept_for_weight;
  cost.forward_workspace_bytes = bytes.forward_workspace;
  cost.input_gradient_workspace_bytes = bytes.input_gradient_workspace;
  cost.weight_gradient_workspace_bytes = bytes.weight_gradient_workspace;
  cost.backward_workspace_bytes = bytes.backward_workspace;
}

namespace {

template <class Pick>
ComputeCost as_one_slice(ComputeCost cost, const std::vector<SliceBytes>& slices, const Pick& pick) {
  if (slices.empty()) return cost;
  SliceBytes picked = slices.front();
  Bytes backward = backward_workspace(picked);
  for (const SliceBytes& slice : slices) {
    for (const auto bytes : {&SliceBytes::kept, &SliceBytes::kept_for_weight, &SliceBytes::forward_workspace,
                             &SliceBytes::input_gradient_workspace, &SliceBytes::weight_gradient_workspace}) {
      picked.*bytes = pick(picked.*bytes, slice.*bytes);
    }
    backward = pick(backward, backward_workspace(slice));
  }
  picked.backward_workspace = backward;
  set_bytes(cost, picked);
  return cost;
}

}  // namespace

ComputeCost as_largest_slice(ComputeCost cost) {
  std::vector<SliceBytes> slices = cost.slice_bytes;
  for (SliceBytes& slice : slices) slice.kept += slice.gradients_taken;
  return as_one_slice(std::move(cost), slices, [](Bytes a, Bytes b) { return std::max(a, b); });
}

ComputeCost as_smallest_slice(ComputeCost cost) {
  const std::vector<SliceBytes> slices = cost.slice_bytes;
  return as_one_slice(std::move(cost), slices, [](Bytes a, Bytes b) { return std::min(a, b); });
}

Seconds backward_time(const ActionTimes& times) {
  return times.input_gradient + times.weight_gradient - times.hidden_in_backward;
}

Seconds backward_time(const ComputeCost& cost) { return backward_time(mean_times(cost)); }

Seconds microbatch_time(const ComputeCost& cost, bool recomputed) {
  const Seconds again = recomputed ? recompute_time(cost.forward, cost.data_moves) : Seconds{};
  return cost.forward + again + backward_time(cost);
}

namespace {

void list_slices(ComputeCost& cost, std::size_t count) {
  if (cost.slice_bytes.empty()) cost.slice_bytes.assign(count, own_bytes(cost));
}

SliceBytes keeping_only(SliceBytes bytes, Bytes kept) {
  bytes.input_gradient_workspace += bytes.kept - kept;
  bytes.forward_workspace += bytes.kept - kept;
  if (bytes.backward_workspace) *bytes.backward_workspace += bytes.kept - kept;
  bytes.kept = kept;
  return bytes;
}

}  // namespace

// Its weights are gathered once for both.
ComputeCost redone_in_backward(ComputeCost layer) {
  const ParameterMoves& weights = layer.parameter_moves;
  const Seconds gathering = layer.data_moves.waits.forward + (weights.beside ? Seconds{} : weights.copying);
  layer.input_gradient += layer.forward - gathering;
  for (ActionTimes& slice : layer.slices) slice.input_gradient += slice.forward - gathering;
  const std::vector<Bytes>& kept = layer.kept_if_redone;
  if (std::ranges::adjacent_find(kept, std::not_equal_to<>()) != kept.end()) list_slices(layer, kept.size());
  for (std::size_t slice = 0; slice < layer.slice_bytes.size(); ++slice) {
    layer.slice_bytes[slice] = keeping_only(layer.slice_bytes[slice], kept.at(slice));
  }
  set_bytes(layer,
            layer.slice_bytes.empty() ? keeping_only(own_bytes(layer), kept.front()) : together(layer.slice_bytes));
  return layer;
}

ComputeCost on_host_between_actions(ComputeCost block, Seconds copying, bool beside) {
  block.activation_moves = {.kept = block.kept_bytes, .copying = copying, .beside = beside};
  if (!beside) {
    block.activation_moves.waits = {.forward = copying, .input_gradient = copying, .backward = copying};
    block.forward += copying;
    block.input_gradient += copying;
    for (ActionTimes& slice : block.slices) {
      slice.forward += copying;
      slice.input_gradient += copying;
    }
  }
  for (SliceBytes& slice : block.slice_bytes) slice = keeping_only(slice, {});
  set_bytes(block, keeping_only(own_bytes(block), {}));
  return block;
}

ComputeCost handing_on(ComputeCost layer, const std::vector<HandedOn>& slices) {
  if (slices.empty()) return layer;
  list_slices(layer, slices.size());
  for (std::size_t n = 0; n < slices.size(); ++n) {
    SliceBytes& bytes = layer.slice_bytes[n];
    bytes.kept += slices[n].beside;
    bytes.gradients_taken = slices[n].all;
    bytes.gradients_left = slices[n].gradients_left;
    bytes.input_gradient_workspace += slices[n].gradients_left;
    if (bytes.backward_workspace) *bytes.backward_workspace += slices[n].gradients_left;
  }
  set_bytes(layer, together(layer.slice_bytes));
  return layer;
}

ComputeCost backward_in_two(ComputeCost cost) {
  cost.hidden_in_backward = {};
  for (ActionTimes& slice : cost.slices) slice.hidden_in_backward = {};
  return cost;
}

ComputeCost of_slices(const std::vector<ComputeCost>& slices) {
  ComputeCost cost = slices.front();
  const bool alike = std::ranges::all_of(slices, [&](const ComputeCost& slice) { return slice == slices.front(); });
  if (alike) return cost;
  for (const auto time : {&ComputeCost::forward, &ComputeCost::input_gradient, &ComputeCost::weight_gradient,
                          &ComputeCost::hidden_in_backward}) {
    Seconds sum;
    for (const ComputeCost& slice : slices) sum += slice.*time;
    cost.*time = sum / static_cast<double>(slices.size());
  }
  std::vector<SliceBytes> bytes;
  for (const ComputeCost& slice : slices) {
    cost.slices.push_back(mean_times(slice));
    bytes.push_back(own_bytes(slice));
  }
  set_bytes(cost, together(bytes));
  if (std::ranges::adjacent_find(bytes, std::not_equal_to<>()) != bytes.end()) cost.slice_bytes = std::move(bytes);
  return cost;
}

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

// The workspace of W, a weight's gradient, does not grow with the tokens, here and above.
ComputeCost part_of(ComputeCost whole, const SlicePart& part) {
  whole.forward = whole.forward * part.forward;
  whole.input_gradient = whole.input_gradient * part.input_gradient;
  whole.weight_gradient = whole.weight_gradient * part.weight_gradient;
  whole.hidden_in_backward = whole.hidden_in_backward * std::min(part.input_gradient, part.weight_gradient);
  for (Bytes* amount : {&whole.kept_bytes, &whole.kept_for_weight_bytes, &whole.forward_workspace_bytes,
                        &whole.input_gradient_workspace_bytes}) {
    *amount = {std::llround(static_cast<double>(amount->value) * part.tokens)};
  }
  if (whole.backward_workspace_bytes) {
    const auto bytes = static_cast<double>(whole.backward_workspace_bytes->value);
    whole.backward_workspace_bytes = Bytes{std::llround(bytes * part.tokens)};
  }
  return whole;
}

}  // namespace plumb
