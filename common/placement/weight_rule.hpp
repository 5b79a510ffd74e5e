// How data-parallel ranks share weights, gradients and optimizer states, and when they gather and reduce them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/placement/moves.hpp"

namespace plumb {

// Placements along `elements` of what a rank of the other axes holds of a weight. When it moves, says the layout
// (common/layout/layout.hpp).
struct WeightRule {
  Placement stored;
  Placement gradient;                       // once it has been reduced
  Placement state;                          // of the optimizer, which updates this part of the weight
  bool gathers_again = false;               // I finds the weight as it is stored, or as a part of its second copy
  std::optional<Placement> second = {};     // of that copy, which F leaves
  std::optional<Placement> exchanged = {};  // of a gradient that is reduced in two steps, between them
  bool operator==(const WeightRule&) const = default;
};

// Over the axes "data", "shard" and "replicate", or "inside" and "across" (by these in the order of a mesh: parts are
// numbered inside first, which is the slice reordering of ZeRO++'s section 3.3): none: all are copies (DDP, arXiv
// 2006.15704). zero1: the states are split; zero2: the gradients too; zero3 and fsdp: the weights too (ZeRO, arXiv
// 1910.02054, section 5; FSDP, arXiv 2304.11277). hsdp: as fsdp over "shard", copies over "replicate". ZeRO++ (arXiv
// 2306.10209): a second copy is split over "inside"; what is quantised says common/cost/shard_moves.hpp.
[[nodiscard]] WeightRule weight_rule(const Mesh& mesh, const DataLayout& data);

// Moves of one weight of so many elements. `gather`: before each use (zero3); `again`: before I, where gathers_again;
// `reduce`: of the sums of its gradient; `publish`: of the updated weight, once a step.
struct WeightMoves {
  std::vector<Move> gather;
  std::vector<Move> again;
  std::vector<Move> reduce;
  std::vector<Move> publish;
};
[[nodiscard]] WeightMoves weight_moves(const Mesh& mesh, const WeightRule& rule, std::int64_t elements);

}  // namespace plumb
