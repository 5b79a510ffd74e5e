#include "common/block_cost/gathered.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace plumb {
namespace {

bool is_large(const PlacedMove& each) { return each.move.collective && each.role != Role::statistics; }

std::int64_t larger_side(const PlacedMove& each) { return std::max(each.move.elements_from, each.move.elements_to); }

// Of an operand the smaller one counts with what is stored, or kept.
std::int64_t both_sides(const PlacedMove& each) { return each.move.elements_from + each.move.elements_to; }

// Logits in fp32 are what the loss keeps, and makes their gradient of: they count there. Narrower ones it copies.
bool is_kept_by_loss(const PlacedBlock& placed, const PlacedMove& each, ElementType precision) {
  if (precision != ElementType::fp32) return false;
  return std::ranges::any_of(placed.sites, [&](const PlacedSite& site) {
    return site.kind == OperationKind::loss && find_value(site, each.tensor) != nullptr;
  });
}

bool gathers(const PlacedMove& each) { return each.role == Role::input || each.role == Role::weight; }

// What I or W gathers again was let go behind F; so is a table, of which I reads nothing.
bool is_kept(const PlacedBlock& placed, const PlacedMove& each) {
  if (each.phase != Phase::forward || !is_large(each) || !gathers(each)) return false;
  if (site_of(placed, each.site).kind == OperationKind::lookup) return false;
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
    Bytes inputs;
    for (const PlacedMove& each : placed.moves) {
      if (each.site != site.name || !is_large(each)) continue;
      if (each.phase != Phase::weight_gradient || each.role != Role::input) continue;
      inputs += Bytes{larger_side(each) * element};
    }
    found.inputs_for_weight = std::max(found.inputs_for_weight, inputs);
    if (site.kind == OperationKind::lookup) continue;  // made by the tokens, not whole
    for (const PlacedTensor& weight : site.weights) {
      found.weight_gradient = std::max(found.weight_gradient, elements(weight.local));
    }
  }
  return found;
}

LargestMoment largest_moment(const std::vector<Operation>& operations, const std::vector<KeptValue>& kept,
                             const PlacedBlock& placed, ElementType precision) {
  const std::int64_t element = element_bytes(precision);
  LargestMoment largest;
  Bytes grown;  // of the operations behind: what waits for W, less what F kept
  for (std::size_t i = operations.size(); i-- > 0;) {
    Bytes forward{std::llround(kept[i].in_forward)};
    Bytes input_gradient = grown + Bytes{std::llround(kept[i].in_input_gradient)};
    grown += Bytes{std::llround(kept[i].until_weight_gradient - kept[i].until_input_gradient)};
    for (const PlacedMove& each : placed.moves) {
      if (each.site != site_name(operations[i]) || !is_large(each)) continue;
      const bool one_side = gathers(each) || is_kept_by_loss(placed, each, precision);
      const Bytes bytes{(one_side ? larger_side(each) : both_sides(each)) * element};
      const bool stays = is_kept(placed, each);
      if (each.phase == Phase::forward && !stays) forward += bytes;
      if (each.phase == Phase::input_gradient) input_gradient += bytes;
      if (stays && each.role == Role::weight) grown -= Bytes{each.move.elements_to * element};
    }
    largest.forward = std::max(largest.forward, forward);
    largest.input_gradient = std::max(largest.input_gradient, input_gradient);
  }
  return largest;
}

}  // namespace plumb
