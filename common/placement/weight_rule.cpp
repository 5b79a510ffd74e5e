#include "common/placement/weight_rule.hpp"

#include <algorithm>
#include <iterator>

namespace plumb {
namespace {

WeightRule shared_out(const Mesh& mesh, const Placement& split, const DataLayout& data) {
  WeightRule rule{.stored = split, .gradient = split, .state = split, .gathers_again = true};
  const std::vector<Axis> inside = axes_of(mesh, {"inside"});
  const std::vector<Axis> across = axes_of(mesh, {"across"});
  const Placement neighbours = with_split({}, Dim::elements, inside);
  if (data.secondary_shard > 0) rule.second = neighbours;
  const bool in_two = data.quantized_gradients > 0 && !inside.empty() && !across.empty();
  if (in_two) rule.exchanged = with_partial(neighbours, set_of(across));
  return rule;
}

}  // namespace

WeightRule weight_rule(const Mesh& mesh, const DataLayout& data) {
  const Placement whole;
  const Placement split = with_split(whole, Dim::elements, axes_of(mesh, {"data", "shard", "inside", "across"}));
  switch (data.sharding) {
    case Sharding::none:
      break;
    case Sharding::zero1:
    case Sharding::zero2:
      return {.stored = whole, .gradient = split, .state = split};
    case Sharding::zero3:
    case Sharding::fsdp:
    case Sharding::hsdp:
      return shared_out(mesh, split, data);
  }
  return {.stored = whole, .gradient = whole, .state = whole};
}

WeightMoves weight_moves(const Mesh& mesh, const WeightRule& rule, std::int64_t elements) {
  const NamedShape flat{"weight", {{Dim::elements, elements}}};
  const Placement summands =
      with_partial({}, set_of(axes_of(mesh, {"data", "shard", "replicate", "inside", "across"})));
  WeightMoves all{.gather = moves(mesh, flat, rule.stored, {}),
                  .again = moves(mesh, flat, rule.second.value_or(rule.stored), {}),
                  .reduce = moves(mesh, flat, summands, rule.exchanged.value_or(rule.gradient)),
                  .publish = moves(mesh, flat, rule.state, rule.stored)};
  if (!rule.gathers_again) all.again.clear();
  if (rule.exchanged) {
    std::vector<Move> last = moves(mesh, flat, *rule.exchanged, rule.gradient);
    std::ranges::move(last, std::back_inserter(all.reduce));
  }
  return all;
}

}  // namespace plumb
