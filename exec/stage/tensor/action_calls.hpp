// Which collectives the actions of a rank make with its groups, where these move on streams: stated before a run.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"

namespace plumb::exec {

// With the rank's tensor group: the moves of its blocks in F, I, B, W and R, in the order in which a stage comes to
// them, and once a step sums of gradients that have stayed summands, where the stage's gradients are added up with
// those of other data, or else where they are clipped, or at its optimizer's step. `emulated`: stages that move
// nothing. With its data-parallel ranks: the sums of REDUCE_GRAD and, where the plan's software reduces beside the
// backward, before them those of each stage's last W or B, a bucket at a time, between its moves. Throws InputError as
// place_block.
[[nodiscard]] RankCalls calls_of_rank(const Plan& plan, int rank, bool emulated = false);

// Positions in a tensor group, of each part whose ranks have collectives among themselves alone: those that add up
// gradients of the same head of keys and values, and a grid's rows, columns and layers.
[[nodiscard]] std::vector<std::vector<int>> tensor_parts(const Plan& plan);

}  // namespace plumb::exec
