// What blocks in sequence wait for weights, for gradients that are reduced and for activations that go to the host and
// come back, and need for them beside each other.
#pragma once

#include <span>
#include <vector>

#include "common/cost/compute_cost.hpp"

namespace plumb {

// Whether it, or any of them, moves something beside its neighbours' computing.
[[nodiscard]] bool moves_beside(const ComputeCost& block);
[[nodiscard]] bool move_beside(const std::vector<ComputeCost>& blocks);

// One stream moves, `prefetch` blocks ahead, as FSDP2 issues it (torch/distributed/fsdp/_fully_shard of PyTorch): where
// nothing more is said one, the gather of block i + 1 when block i begins to compute, against the order of F in the
// backward; the reduction of block i beside the block behind it in that order. With t the computing, g the gathering
// and r the reducing of a block, n blocks, one ahead:
//   F  g_0 + Σ max(t_i, g_{i+1})                    W  Σ max(t_i, r_{i+1}) + r_0
//   I  g_{n−1} + Σ max(t_i, g_{i−1})                B  g_{n−1} + Σ max(t_i, g_{i−1} + r_{i+1}) + r_0
// where what lies outside is 0, and g in I and B that of a second copy where there is one; so it is in R, else as F.
// Of more ahead block_passage.hpp has the recurrence.
// Activations have the host's link for themselves, h each way: down beside the next block's F, the last one's behind F;
// up beside the block behind, the last one's before I or B:
//   F  g_0 + Σ max(t_i, g_{i+1}, h_{i−1}) + h_{n−1}
//   I  max(g_{n−1}, h_{n−1}) + Σ max(t_i, g_{i−1}, h_{i−1})
//   B  max(g_{n−1}, h_{n−1}) + Σ max(t_i, g_{i−1} + r_{i+1}, h_{i−1}) + r_0
// Own parts of weights that stand on the host come up, u of a block, as the first part of its g. In I and B they have
// that way of the link before the activations: h_{i−1} there is u_{i−1} + h_{i−1}, one ahead, which is all that is
// planned with both.
// What does not go beside the computing is in the times of its block. Blocks that are moved as one (`joined`) are one
// in all of this: a block above is then such a unit. `sum`: of these blocks, with their own times alone, also of each
// slice.
void add_waits(ComputeCost& sum, const std::vector<ComputeCost>& blocks);

// When each unit's gradients are reduced, from the start of B, or of a W of its own, in the order in which it goes
// through them; of slices the first one's.
[[nodiscard]] std::vector<Seconds> reduced_at(std::span<const ComputeCost> blocks, bool weight_gradient_alone);

// The block's own: its weights are whole while F or I computes, its gradients while W does. What is quantised is there
// while they come or go, when nothing of the block is computed: its F keeps nothing yet, its W nothing any more.
void add_own_moves(SliceBytes& bytes, const DataMoves& moves);
// The same of blocks that are moved as one: their weights are whole while any of them works, and in a backward the
// gradients of each from its W on. Not of what is quantised.
void add_own_moves_as_one(std::span<ComputeCost> unit);

// What blocks need meanwhile for one that is on its way beside them: weights that come, of quantised ones these alone,
// and gradients that are reduced. B needs what I and W need.
struct MovedBytes {
  Bytes forward = {};
  Bytes input_gradient = {};
  Bytes weight_gradient = {};
};

// Of each block. While it computes, the weights of the next units come, so many as are gathered ahead, and the
// gradients of the one before are reduced, of several as reductions_under_way says: all in the order in which the
// action goes through the blocks. And the activations of the block before it in the stage go down in F, and come up in
// I or B.
[[nodiscard]] std::vector<MovedBytes> moved_for_neighbours(const std::vector<ComputeCost>& blocks);
// `bytes`: of the blocks.
void add_neighbours(std::vector<SliceBytes>& bytes, const std::vector<ComputeCost>& blocks);

}  // namespace plumb
