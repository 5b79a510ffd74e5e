// What of a block's states and activations stands on the host, and how long their update and copies take. Internal.
#pragma once

#include "common/block_cost/block_costs.hpp"

namespace plumb {

// Moves the optimizer's states of a block with these parameters to the host: fp32 master weights and moments, and a
// buffer of the gradients that this rank updates by. Once a step those go down, in the software's type, the host reads
// them, reads and writes all states and, where weights are narrower than fp32, writes these, at the bandwidth of its
// memory; and weights in the training precision go up (ZeRO-Offload, arXiv 2101.06840, sections 3.2 to 4.1: its 4M of
// the step's communication are 2M of fp16 gradients and 2M of fp16 weights).
void offload_optimizer(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario);

// Moves this rank's own parts of a block's weights to the host, frozen ones with them; the device has a weight only
// while it is gathered. A host that keeps the optimizer's states writes them there, and has no master copy beside fp32
// weights. A device that updates copies them down in STEP, fp32 weights up before. After offload_optimizer.
void offload_parameters(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario);

// How long it takes the own parts of the weights of a block to come up for one gathering.
[[nodiscard]] ParameterMoves weights_coming_up(const ComputeCost& block, const Scenario& scenario);

// The block with what it keeps between F and I or B on the host: once down and once up over the device's port, a
// microbatch (arXiv 2104.07857, sections 4.1 and 5.1.2, of checkpoints). What W needs after I, and what slices hand on,
// stays.
[[nodiscard]] ComputeCost with_activations_on_host(ComputeCost block, const Scenario& scenario);

// The host as one rank of the layout has it while all others use theirs: those that share a port have an even part of
// it each, and those that share cores of a CPU machine an even part of these.
[[nodiscard]] HostProfile host_in_training(const Scenario& scenario);

// Whether copies to the host go beside what it, or the device, computes; not where a core does both.
[[nodiscard]] bool copies_beside_update(const Machine& machine);

}  // namespace plumb
