// Collectives in pieces beside the products that read what they gather, or make what they reduce: asynchronous tensor
// parallelism.
#pragma once

#include <cstddef>
#include <vector>

#include "common/program/step.hpp"

namespace plumb {

// By their places in a program's list, all of one phase: an all-gather or a reduce-scatter, and the products.
struct MoveWithProducts {
  std::size_t move = 0;
  std::vector<std::size_t> products = {};
};

// Of t ranks, each product in t pieces, one of each rank's tokens, and between these the t−1 steps of the collective's
// ring (Wang et al., "Overlap Communication with Dependent Computation via Decomposition", ASPLOS 2023,
// doi:10.1145/3567955.3567959; PyTorch's `fused_all_gather_matmul` and `fused_matmul_reduce_scatter`):
//   gather   the products of the own piece beside the first step, those of each that comes beside the next step
//   reduce   the products of the piece that goes furthest, then each next one beside the step that sends the one before
// so that, c of products and x of a step, both take c + (t−1)·max(c, x). W, which sums over tokens, adds to what its
// piece before has made. What has come of a scatter is added up behind it, a kernel that reads t parts and writes one
// (`fused_matmul_reduce_scatter`), which a collective does as it moves them. Volume and order of phases stay. `ranks`:
// of each move's group.
[[nodiscard]] BlockProgram decomposed(BlockProgram program, const std::vector<MoveWithProducts>& together, int ranks);

// Likewise what a group of products that read one value is made of, on a 2d or 2.5d grid: what gathers its operands,
// and what reduces its result, each product's or the value's.
struct ProductsWithMoves {
  std::size_t at = 0;  // where all of it stands then: a move of the value, or in W the last product
  std::vector<std::size_t> before = {};
  std::vector<std::size_t> products = {};
  std::vector<std::size_t> behind = {};
};

// Of q ranks a side, SUMMA's panels (van de Geijn and Watts 1997): of each product q parts, along the rows of its
// matrix as that is stored by row, which F adds up and of which I and W make one each; beside those of each panel the
// next one's operands and the result of the one before. All ranks have the same panel at a time: its operands go around
// each row and column from the ranks that have them, and its result to those that keep it, a block at the wire's full
// rate. So of q panels each takes as long as one of the q−1 steps of the plain move, and F of products of c a panel and
// moves of x takes x + (q−1)·max(c, x) + c. Moves beside the same products follow one another. Volume and order of
// phases stay.
[[nodiscard]] BlockProgram in_panels(BlockProgram program, const std::vector<ProductsWithMoves>& together, int side);

// Whose piece a rank at this position in its group of so many makes its products of, `number` counting them from 0: of
// a gather its own, then as they come around the ring, that of the rank before it first; of a scatter that of the rank
// before it, which goes furthest, then those of the ranks before that, its own last.
[[nodiscard]] int whose_piece(Collective collective, int ranks, int position, int number);

}  // namespace plumb
