// Seconds and bytes of one block or one stage: of its actions on a microbatch, and once a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/cost/data_moves.hpp"
#include "common/cost/host_moves.hpp"
#include "common/cost/tensor_groups.hpp"

namespace plumb {

enum class Optimizer : std::uint8_t { sgd, adam };                // adam: AdamW
[[nodiscard]] const std::vector<std::string>& optimizer_names();  // by value, as in scenarios and files

// Of one microbatch, or of one slice of its sequences.
struct ActionTimes {
  Seconds forward = {};
  Seconds input_gradient = {};
  Seconds weight_gradient = {};
  Seconds hidden_in_backward = {};
  bool operator==(const ActionTimes&) const = default;
};
// What a block or stage needs for one slice of a microbatch's sequences. Gradients of what slices hand on flow back:
// until its I ends a slice has those that later ones made, and leaves some to earlier ones, part of the worst moments.
struct SliceBytes {
  Bytes kept = {};
  Bytes kept_for_weight = {};
  Bytes forward_workspace = {};
  Bytes input_gradient_workspace = {};
  Bytes weight_gradient_workspace = {};
  std::optional<Bytes> backward_workspace = {};
  Bytes gradients_taken = {};
  Bytes gradients_left = {};
  bool operator==(const SliceBytes&) const = default;
};

// What a slice of a layer hands to later ones, from its F to the end of its I.
struct HandedOn {
  Bytes all;             // as large as the gradients of it that come back
  Bytes beside;          // of that, what is not among what the layer keeps in any case
  Bytes gradients_left;  // that its I is the first to make for earlier slices
};

// One block (embedding, a layer, or the head) or one stage, for one microbatch on one rank.
struct ComputeCost {
  Seconds forward = {};
  Seconds input_gradient = {};
  Seconds weight_gradient = {};
  // A full backward B takes so much less than I and W apart: collectives of either hide behind the other.
  Seconds hidden_in_backward = {};
  // Once per step, over the data-parallel ranks, as far as nothing hides it.
  Seconds gradient_reduction = {};
  Seconds optimizer = {};         // once per step
  Seconds weight_gathering = {};  // once per step, where data-parallel ranks update a part of the weights each
  std::int64_t parameters = 0;
  Bytes parameter_bytes = {};
  Bytes gathered_bytes = {};  // of these, what is gathered then
  Bytes gradient_bytes = {};
  Bytes tensor_gradient_bytes = {};  // of these, what ranks of a tensor group have summands of: added up once per step
  std::vector<TensorSum> grid_sums = {};  // the same of a grid's ranks
  Bytes second_gradient_bytes = {};       // of these, a tied table's second gradient, which the rank adds to the first
  Bytes optimizer_bytes = {};
  // Of one microbatch, alive between its actions: a block's input is its own, its output the next one's.
  Bytes kept_bytes = {};             // after F, until I
  Bytes kept_for_weight_bytes = {};  // after I, until W
  // The worst moment inside an action, with all that this microbatch holds then, minus:
  Bytes forward_workspace_bytes = {};          // … kept_bytes
  Bytes input_gradient_workspace_bytes = {};   // … kept_bytes; the output gradient counts here
  Bytes weight_gradient_workspace_bytes = {};  // … kept_for_weight_bytes
  // … kept_bytes, of a full backward, which goes block by block: W of each behind its I. None: as I and then W of all.
  std::optional<Bytes> backward_workspace_bytes = {};
  // Of each slice of a sequence, where a schedule cuts it and they differ: times above are then the mean of these, kept
  // bytes the mean, workspaces the largest.
  std::vector<ActionTimes> slices = {};
  // The same of bytes, where they differ.
  std::vector<SliceBytes> slice_bytes = {};
  // Of a layer, by slice: all that F keeps where it is redone inside the backward, its input and what it hands on to
  // later slices of the sequence.
  std::vector<Bytes> kept_if_redone = {};
  DataMoves data_moves = {};
  HostMoves host_moves = {};
  ActivationMoves activation_moves = {};  // then kept_bytes are 0
  ParameterMoves parameter_moves = {};    // then parameter_bytes are 0
  bool operator==(const ComputeCost&) const = default;
};

// What data-parallel ranks sum once per step.
[[nodiscard]] inline Bytes reduced_bytes(const ComputeCost& cost) {
  return cost.gradient_bytes - cost.second_gradient_bytes - cost.data_moves.accumulated;
}

// Weights, gradients and states between the first F and STEP.
[[nodiscard]] inline Bytes states_held(const ComputeCost& cost) {
  return cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes + cost.data_moves.unsharded;
}

// Of the actions with this number, which counts slices where a schedule cuts sequences.
[[nodiscard]] ActionTimes times_of(const ComputeCost& cost, int microbatch);
[[nodiscard]] SliceBytes bytes_of(const ComputeCost& cost, int microbatch);
void set_bytes(ComputeCost& cost, const SliceBytes& bytes);  // of its actions without a number

// As if each slice needed as much as the one that needs most of it, with all gradients that later slices made, or
// least, with none; where they are alike, the cost itself.
[[nodiscard]] ComputeCost as_largest_slice(ComputeCost cost);
[[nodiscard]] ComputeCost as_smallest_slice(ComputeCost cost);

// A full backward, I and W in one; of a cost that is the mean of slices, the mean.
[[nodiscard]] Seconds backward_time(const ActionTimes& times);
[[nodiscard]] Seconds backward_time(const ComputeCost& cost);

// The worst moment inside a full backward, and inside its W, where I and W are known apart, minus kept_bytes.
[[nodiscard]] Bytes backward_workspace(const SliceBytes& bytes);
[[nodiscard]] Bytes weight_gradient_in_backward(const SliceBytes& bytes);
[[nodiscard]] Bytes backward_workspace(const ComputeCost& cost);

// F, I and W of one microbatch, and R where F is redone; of slices the mean.
[[nodiscard]] Seconds microbatch_time(const ComputeCost& cost, bool recomputed);

// A layer whose forward is done again inside its backward: F keeps what `kept_if_redone` says.
[[nodiscard]] ComputeCost redone_in_backward(ComputeCost layer);
// Its kept bytes stand on the host between F and I or B. `copying`: each way.
[[nodiscard]] ComputeCost on_host_between_actions(ComputeCost block, Seconds copying, bool beside);
// The same backward in two actions: nothing of I hides behind W.
[[nodiscard]] ComputeCost backward_in_two(ComputeCost cost);
// One block's costs, each of one slice of its microbatch, as one cost: its means, and each slice's times and bytes if
// they differ. What is counted once a step is the same in all.
[[nodiscard]] ComputeCost of_slices(const std::vector<ComputeCost>& slices);
// A layer that hands this on, by slice; empty: nothing.
[[nodiscard]] ComputeCost handing_on(ComputeCost layer, const std::vector<HandedOn>& slices);
// Where only the whole was measured: a slice has an even part of all times and bytes that grow with the tokens. That is
// too little for matmuls, whose rate falls with fewer tokens, and takes attention of all slices for the mean.
[[nodiscard]] ComputeCost per_slice(ComputeCost cost, int slices);
// A slice's own parts: of the times of F, I and W, and of bytes.
struct SlicePart {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double tokens = 0;
};
[[nodiscard]] ComputeCost part_of(ComputeCost whole, const SlicePart& part);

// Blocks after one another, as one: times and kept bytes add up, with what moves_in_sequence.hpp says. Workspaces are
// the worst moment of it: F goes forward over the blocks while earlier ones' kept bytes stay, I and W backward.
[[nodiscard]] ComputeCost in_sequence(const std::vector<ComputeCost>& blocks);

}  // namespace plumb
