#include "common/block_cost/gathered.hpp"

#include <algorithm>

namespace plumb {
namespace {

bool is_large(const PlacedMove& each) { return each.move.collective && each.role != Role::statistics; }

std::int64_t larger_side(const PlacedMove& each) { return std::max(each.move.elements_from, each.move.elements_to); }

bool gathers(const PlacedMove& each) { return each.role == Role::input || each.role == Role::weight; }

// What I or W gathers again was let go behind F.
bool is_kept(const PlacedBlock& placed, const PlacedMove& each) {
  if (each.phase != Phase::forward || !is_large(each) || !gathers(each)) return false;
  const Phase again = each.role == Role::input ? Phase::weight_gradient : Phase::input_gradient;
  return find_move(placed, again, each.role, each.tensor) == nullptr;
}

}  // namespace

Gathered gathered(const PlacedBlock& placed, ElementType precision) {
  const std::int64_t element = element_bytes(precision);
  Gathered found;
  for (const PlacedMove& each : placed.moves) {
    if (!is_kept(placed, each)) continue;
    const Bytes bytes{each.move.elements_to * element};
    found.kept += bytes;
    if (each.role == Role::input) found.kept_for_weight += bytes;
  }
  for (const PlacedSite& site : placed.sites) {
    Bytes forward;
    Bytes input_gradient;
    Bytes inputs;
    for (const PlacedMove& each : placed.moves) {
      if (each.site != site.name || !is_large(each)) continue;
      const Bytes bytes{larger_side(each) * element};
      if (each.phase == Phase::forward && !is_kept(placed, each)) forward += bytes;
      if (each.phase == Phase::input_gradient) input_gradient += bytes;
      if (each.phase == Phase::weight_gradient && each.role == Role::input) inputs += bytes;
    }
    found.in_forward = std::max(found.in_forward, forward);
    found.in_input_gradient = std::max(found.in_input_gradient, input_gradient);
    found.inputs_for_weight = std::max(found.inputs_for_weight, inputs);
    if (site.kind == OperationKind::lookup) continue;  // made by the tokens, not whole
    for (const PlacedTensor& weight : site.weights) {
      found.weight_gradient = std::max(found.weight_gradient, elements(weight.local));
    }
  }
  return found;
}

}  // namespace plumb
