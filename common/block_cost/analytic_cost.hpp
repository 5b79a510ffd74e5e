// The cost of one block on a device of known numbers: what block_costs.hpp gives where nothing was measured.
#pragma once

#include <vector>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/cost/costs.hpp"
#include "common/program/block_program.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

// Of the scenario's microbatch, or of a slice of it.
[[nodiscard]] KernelContext kernel_context(const Scenario& scenario, Slice slice = {});

// Experts that are chosen `load` times as often as the mean see so many more tokens.
void load_experts(std::vector<Operation>& operations, double load);

// A weight as one rank of a tensor group has it, before data-parallel ranks share it out.
struct WeightOfRank {
  std::int64_t elements = 0;
  bool trained = true;
  bool late = false;  // as ParameterShare has it
};
// Of the scenario's layout, in the order of the block's parameters.
[[nodiscard]] std::vector<WeightOfRank> weights_of_rank(const BlockWork& work, const Scenario& scenario);

// Parameters of one rank of a tensor group in the scenario's layout, with all that its ranks share out.
[[nodiscard]] ParameterShare share_of_rank(const BlockWork& work, const Scenario& scenario);

// What its tensor ranks have summands of, added up once a step.
void set_tensor_gradients(ComputeCost& cost, const BlockProgram& program, const TensorLayout& tensor);

// Of the scenario's training and gradients; what is gathered, reduced and kept where its layout shares states,
// gradients or weights out.
void set_states(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario);

// One rank's, of work that is that of the slice. Throws InputError for activations of more than 8 PiB.
[[nodiscard]] ComputeCost analytic_cost(const BlockWork& work, const Scenario& scenario, Slice slice);

}  // namespace plumb
