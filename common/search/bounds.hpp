// What no split of a family can go below, from its blocks alone.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cost/costs.hpp"

namespace plumb {

// Of each rank, its parts of a vocabulary that the pipeline divides.
struct BoundedParts {
  Seconds passing = {};     // of a microbatch, all that they take
  Seconds in_between = {};  // of that, between the last stage's F and its B
  Seconds optimizer = {};
  Bytes states = {};
};

struct BoundedFamily {
  int ranks = 1;
  int stages = 1;
  std::int64_t passes = 1;  // of every block in a step: microbatches, times slices
  int replicas = 1;         // 2: a block may share its passes out over two ranks
  bool splits_backward = false;
  bool redone = false;         // F again, by an action R
  std::vector<int> held = {};  // by stage, microbatches that it holds at its fullest at least; empty: one each
  double hidden_in_pairs = 0;  // of the shorter action of an overlapped pair: the longer hides it
  Seconds overhead = {};       // once a step on every rank
  BoundedParts parts = {};     // beside the blocks
};

// Let t be a block's F, I, W (and R), a the part of it that a microbatch must have done before the next stage can begin
// it, or after that has ended: F and B, of a backward in two F alone (its W may come last); of slices the first's, t
// then their mean. W = Σt, ρ = min a/t.
//   (1) The ranks together work passes · W and their optimizers; the longest does at least the mean.
//   (2) All passes of the heaviest block are one rank's.
//   (3) With a stage on each rank, stage s begins behind Σ F of those before it and these drain behind it:
//       T ≥ Σ_{r<s} a_r + passes · t_s ≥ ρ S_s + passes · (S_{s+1} − S_s) with S_s = Σ_{r<s} t_r. Hence
//       S_{s+1} ≤ (1 − ρ/passes) S_s + T/passes, and since S_p = W: T ≥ ρ W / (1 − (1 − ρ/passes)^p).
// Where the pipeline's ranks divide the vocabulary, each works for its parts, too. (1) and (2) grow by all of that.
// What lies between F and B of the last stage lies between the first F and the last B of every rank: in (3), each
// T/passes is less by as much, so that the bound grows by passes times that. Messages and reductions take no time here,
// and all actions are paired as well as can be (`least_of_pairs`). The largest of the three, and the overhead.
[[nodiscard]] Seconds least_time(const std::vector<ComputeCost>& blocks, const BoundedFamily& family);

// Of the fullest rank. When a microbatch has passed the last F the ranks together hold its activations and all states;
// the fullest has at least the mean. With a stage on each rank, besides: the least limit under which the blocks can be
// cut into stages that hold their states and `held` microbatches each, by bisection; a stage that reaches as far as it
// can leaves least to the others, so that one walk over the blocks tells. Each holds its parts' states besides.
[[nodiscard]] Bytes least_memory(const std::vector<ComputeCost>& blocks, const BoundedFamily& family);

}  // namespace plumb
