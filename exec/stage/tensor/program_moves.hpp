// How the program of a placed block makes its moves where some go beside products: in pieces, or in panels
// (common/program/decomposed.hpp).
#pragma once

#include <array>
#include <set>
#include <vector>

#include "common/placement/placed_block.hpp"
#include "common/program/step.hpp"

namespace plumb::exec {

// The moves of which `program`, that of the placed block, makes each step beside products.
[[nodiscard]] std::set<const PlacedMove*> moves_in_pieces(const PlacedBlock& placed, const BlockProgram& program);

// What a rank begins next of a block in panels: a move, or one panel of it; or it makes the products of a panel.
struct PanelStep {
  static constexpr int whole = -1;

  const PlacedMove* move = nullptr;  // null: products
  int panel = whole;
  bool operator==(const PanelStep&) const = default;
};
using PanelSteps = std::array<std::vector<PanelStep>, 3>;  // by phase

// All moves in the order of `program`, that of a placed block in panels, and each panel's products, behind what is
// begun beside them. Throws RunError for a step that is no move of the block. They point into the placed block.
[[nodiscard]] PanelSteps panel_steps(const PlacedBlock& placed, const BlockProgram& program);

}  // namespace plumb::exec
