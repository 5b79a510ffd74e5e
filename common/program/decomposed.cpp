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

ProgramStep step_of_ring(ProgramStep move, int ranks) {
  move.move.pieces = ranks - 1;
  move.move.received /= ranks - 1;
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
    pieces.push_back(step_of_ring(move, ranks));
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

}  // namespace

BlockProgram decomposed(BlockProgram program, const std::vector<MoveWithProducts>& together, int ranks) {
  std::map<std::size_t, const MoveWithProducts*> by_move;
  std::set<std::size_t> gone;
  for (const MoveWithProducts& each : together) {
    by_move[each.move] = &each;
    gone.insert(each.products.begin(), each.products.end());
  }
  std::vector<ProgramStep> steps;
  std::map<std::size_t, std::size_t> place;  // of the steps that stay
  std::vector<std::size_t> staying;          // in the new list: whose `beside` are places in the old one
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (gone.contains(i)) continue;
    const auto found = by_move.find(i);
    if (found == by_move.end()) {
      place[i] = steps.size();
      staying.push_back(steps.size());
      steps.push_back(program.steps[i]);
      continue;
    }
    std::vector<ProgramStep> pieces = in_pieces(program.steps, *found->second, ranks);
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

int whose_piece(Collective collective, int ranks, int position, int number) {
  const int before = collective == Collective::all_gather ? number : number + 1;
  return (position - before % ranks + ranks) % ranks;
}

}  // namespace plumb
