// What the slices of a sequence hand to each other in a layer: keys and values, states of recurrences, their gradients.
#pragma once

#include <vector>

#include "common/cost/compute_cost.hpp"
#include "common/scenario/scenario.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {

// By slice, of one rank of a tensor group, of the scenario's microbatch; as exec/stage/modules does it. A slice hands
// on its keys and values, of a window w the last w − 1 of them, or its recurrence's state and the last inputs of its
// convolution. They are there from its F to the end of its I. From later slices' I it gets gradients as large:
// those of keys and values from the last slice that sees them on, those of a state from the next one. Keys, values and
// inputs of a convolution are kept in any case; the state is not, unless it stands among the states of all chunks that
// composed software keeps.
//
// Empty where nothing is handed on: of a whole sequence, of blocks that are no layers.
[[nodiscard]] std::vector<HandedOn> handed_on(const Scenario& scenario, std::size_t block,
                                              const std::vector<Slice>& slices);

}  // namespace plumb
