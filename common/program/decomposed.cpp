#include "common/program/decomposed.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace plumb {
namespace {

// Of each rank's tokens one. What W makes is a sum over tokens, to which all pieces but the first add.
ProgramStep piece_of(ProgramStep product, int ranks, int number) {
  MatmulSizes& sizes = product.matmul;
  double& tokens = product.phase == Phase::weight_gradient ? sizes.k : sizes.m;
  tokens /= ranks;
  if (product.phase == Phase::weight_gradient && number > 0) sizes.accumulates = true;
  return product;
}

// One of so many that bring what the whole does, each as long as a step of its ring.
ProgramStep piece_of_move(ProgramStep move, int pieces, int steps) {
  move.move.pieces = steps;
  move.move.received /= pieces;
  move.beside.clear();
  return move;
}

// In the order in which they run, `beside` counting from the first.
std::vector<ProgramStep> in_pieces(const std::vector<ProgramStep>& steps, const MoveWithProducts& whole, int ranks) {
  const ProgramStep& move = steps[whole.move];
  const bool gathers = move.move.collective == Collective::all_gather;
  std::vector<ProgramStep> pieces;
  for (int number = 0; number < ranks; ++number) {
    std::vector<std::size_t> products;
    for (const std::size_t product : whole.products) {
      products.push_back(pieces.size());
      pieces.push_back(piece_of(steps[product], ranks, number));
    }
    if (number == (gathers ? ranks - 1 : 0)) continue;
    pieces.push_back(piece_of_move(move, ranks - 1, ranks - 1));
    pieces.back().beside = std::move(products);
  }
  if (!gathers) {
    pieces.push_back({.name = move.name + ".add",
                      .phase = move.phase,
                      .kind = StepKind::stream,
                      .bytes = move.move.bytes * (1 + 1.0 / ranks)});
  }
  return pieces;
}

// Along its matrix's inputs: F contracts them.
ProgramStep panel_of(ProgramStep product, int side, int number) {
  MatmulSizes& sizes = product.matmul;
  const bool contracts = product.phase == Phase::forward;
  (contracts ? sizes.k : sizes.n) /= side;
  if (contracts && number > 0) sizes.accumulates = true;
  return product;
}

std::vector<ProgramStep> panels(const std::vector<ProgramStep>& steps, const ProductsWithMoves& whole, int side) {
  std::vector<ProgramStep> pieces;
  const auto move = [&](const std::vector<std::size_t>& moves, const std::vector<std::size_t>& beside) {
    for (const std::size_t each : moves) {
      pieces.push_back(piece_of_move(steps[each], side, side - 1));
      pieces.back().beside = beside;
    }
  };
  move(whole.before, {});
  for (int number = 0; number < side; ++number) {
    std::vector<std::size_t> products;
    for (const std::size_t product : whole.products) {
      products.push_back(pieces.size());
      pieces.push_back(panel_of(steps[product], side, number));
    }
    if (number > 0) move(whole.behind, products);
    if (number + 1 < side) move(whole.before, products);
  }
  move(whole.behind, {});
  return pieces;
}

// Steps that stand, in the order in which they run, in the place of one, and those that are gone with it.
struct Replaced {
  std::map<std::size_t, std::vector<ProgramStep>> at = {};
  std::set<std::size_t> gone = {};
};

BlockProgram replaced(BlockProgram program, Replaced replaced) {
  std::vector<ProgramStep> steps;
  std::map<std::size_t, std::size_t> place;  // of the steps that stay
  std::vector<std::size_t> staying;          // in the new list: whose `beside` are places in the old one
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const auto found = replaced.at.find(i);
    if (found == replaced.at.end()) {
      if (replaced.gone.contains(i)) continue;
      place[i] = steps.size();
      staying.push_back(steps.size());
      steps.push_back(program.steps[i]);
      continue;
    }
    std::vector<ProgramStep>& pieces = found->second;
    const std::size_t first = steps.size();
    const std::size_t last = first + pieces.size() - 1;
    const bool reversed = program.steps[i].phase != Phase::forward;  // I and W go against the list
    for (ProgramStep& piece : pieces) {
      for (std::size_t& other : piece.beside) other = reversed ? last - other : first + other;
    }
    if (reversed) std::ranges::reverse(pieces);
    std::ranges::move(pieces, std::back_inserter(steps));
  }
  for (const std::size_t each : staying) {
    for (std::size_t& other : steps[each].beside) other = place.at(other);
  }
  program.steps = std::move(steps);
  return program;
}

}  // namespace

BlockProgram decomposed(BlockProgram program, const std::vector<MoveWithProducts>& together, int ranks) {
  Replaced pieces;
  for (const MoveWithProducts& each : together) {
    pieces.at[each.move] = in_pieces(program.steps, each, ranks);
    pieces.gone.insert(each.products.begin(), each.products.end());
  }
  return replaced(std::move(program), std::move(pieces));
}

BlockProgram in_panels(BlockProgram program, const std::vector<ProductsWithMoves>& together, int side) {
  Replaced pieces;
  for (const ProductsWithMoves& each : together) {
    pieces.at[each.at] = panels(program.steps, each, side);
    for (const auto* gone : {&each.before, &each.products, &each.behind}) {
      pieces.gone.insert(gone->begin(), gone->end());
    }
  }
  return replaced(std::move(program), std::move(pieces));
}

int whose_piece(Collective collective, int ranks, int position, int number) {
  const int before = collective == Collective::all_gather ? number : number + 1;
  return (position - before % ranks + ranks) % ranks;
}

}  // namespace plumb
