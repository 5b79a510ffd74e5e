// The cost of every block of a scenario's model: from its profile if there is one, else from the device's datasheet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/cost/costs.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/program/block_program.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

// layers + 2 entries, for one microbatch of `microbatch` sequences: embedding, layers, head (final norm, head, loss,
// and multi-token prediction if the model has it).
//
// Where the ranks of a stage are more than the cores of their machine, computing takes as many times as long
// (core_slowdown); what stages take of each other is the simulator's to say.
//
// With a profile: its medians. Throws InputError when it was measured at other shapes, naming both: of another model,
// sequence or tensor layout. Of a rank of a tensor group the profile has computations and bytes, and the time of the
// collectives is added as it is in analytic costs, without overlap.
//
// Analytic, of one rank of a tensor group: what the block's program (common/program) takes on the scenario's device,
// with its software; recompute inside the backward counts as I. The optimizer streams its states.
// Workspaces are assumed: of F the output, of I the output's and the input's gradient, each with what the operation
// needs that needs most while it runs (as much as it keeps, unless its `working` says otherwise), of W its largest
// gradient in fp32 before it is added (on hosts also as the 16-bit product that it is a copy of), and the largest value
// that it gathers.
// Of a block that a tensor group shares out these are as large as what its moves have on either side, and of I there
// are two more where several products give back one gradient: their sum, and the copy of it that is moved. Of a grid
// they have all that one product gathers and makes at once, and what F's gathered operands hold until I or W counts as
// kept (common/block_cost/gathered.hpp).
//
// With LoRA as common/model/lora.hpp says; of a frozen tied table too there is no gradient.
//
// Of these slices of the sequences (none: of the whole): analytic, each at its own shape, matmuls over its tokens
// and attention over all keys up to its end, so that of equal ones later slices take longer. Measured, of equal ones an
// even part, of others in times what the slice has of each phase's FLOPs.
//
// Throws InputError where a block's activations are larger than 8 PiB, or those of the whole batch and all states than
// 2 EiB, whatever part of that a rank holds: sums and products of what it returns fit 63 bits.
//
// Parameters and states are counted in both cases, as exactly as the shapes tell. A tied head reads the embedding's
// table: without a copy or gradient of its own here, see `with_table_copy` and `with_table_gradient`.
[[nodiscard]] std::vector<ComputeCost> block_costs(const Scenario& scenario, std::int64_t microbatch,
                                                   const std::vector<Slice>& slices = {});

// The head's cost where its tied table cannot be the embedding's own, because they stand in two stages: a copy with
// gradient, optimizer states and optimizer time.
[[nodiscard]] ComputeCost with_table_copy(ComputeCost head, const Scenario& scenario, const ComputeCost& embedding);

// The head's cost where one stage has both: the table is the embedding's, and the head collects a gradient of its own,
// which is added to the embedding's before the optimizer steps.
[[nodiscard]] ComputeCost with_table_gradient(ComputeCost head, const Scenario& scenario);

// One or the other to the head of a tied model, in a pipeline of so many stages: two hold two tables, also where one
// rank holds both. Neither where the pipeline divides the vocabulary. `blocks`: from the embedding to the head.
void settle_tied_head(std::vector<ComputeCost>& blocks, const Scenario& scenario, int stages);

// What the analytic costs of a block are evaluations of, and the machine on which they are: messages beside matmuls
// take some of its multiprocessors, and ranks of a stage that are more than a machine's cores share them.
[[nodiscard]] BlockProgram program_of_block(const Scenario& scenario, std::size_t block, Slice slice = {});
[[nodiscard]] Machine machine_in_training(const Scenario& scenario);

// "profile of HOST, 15 rounds of one rank, gloo transport" (or "of 2 ranks at once"), or "peak (datasheet) × efficiency
// (assumed: …)".
[[nodiscard]] std::string provenance(const Scenario& scenario);
inline constexpr std::string_view measured_provenance = "profile of";  // how that of measured costs begins

// Whether the forward of every layer is redone inside its backward. Recompute stage by stage has actions of its own,
// see recomputes_by_action; of some layers, see layers_redone_inside.
[[nodiscard]] bool redoes_every_layer_inside(const Training& training, const Software& software);

// Hidden states of one microbatch, as one rank holds them between layers: of a tensor group with sequence parallelism,
// and of a grid, its part.
[[nodiscard]] Bytes boundary_of_rank(const Scenario& scenario);

// Elements of a block's parameters on one rank.
struct ParameterShare {
  std::int64_t all = 0;
  std::int64_t trained = 0;
  std::int64_t updated = 0;      // of these, by the rank that updates most
  std::int64_t stored = 0;       // of all, by the rank that has most where each has a part of every weight
  std::int64_t late = 0;         // trained ones whose gradients are added up with other stages' or tensor ranks' first
  std::int64_t accumulated = 0;  // of the gradients of the others, the part of the rank that has most
};
// The largest of so many parts of one weight.
[[nodiscard]] constexpr std::int64_t largest_part(std::int64_t elements, std::int64_t shards) {
  return (elements + shards - 1) / shards;
}
// As one weight, of which so many ranks update a part each.
[[nodiscard]] constexpr ParameterShare all_trained(std::int64_t parameters, std::int64_t shards = 1) {
  const std::int64_t part = largest_part(parameters, shards);
  return {.all = parameters, .trained = parameters, .updated = part, .stored = part, .accumulated = part};
}
// Of every updated element, in fp32.
[[nodiscard]] constexpr std::int64_t moments_of(Optimizer optimizer) { return optimizer == Optimizer::adam ? 2 : 0; }
struct StateBytes {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;
  Bytes trained;  // of `parameters`
  Bytes updated;  // of `trained`
  Bytes stored;   // of `parameters`
};
// Bytes of parameters, gradients and optimizer states of `parameters` elements: weights in the training precision,
// gradients of the software's type, AdamW with two fp32 moments and an fp32 master copy unless the weights are fp32.
// Frozen parameters (LoRA) have weights alone.
[[nodiscard]] StateBytes state_bytes(ParameterShare parameters, const Training& training,
                                     ElementType gradients = ElementType::fp32);

}  // namespace plumb
