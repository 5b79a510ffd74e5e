#include "common/placement/weight_rule.hpp"

namespace plumb {

WeightRule weight_rule(const Mesh& mesh, Sharding sharding) {
  const std::vector<Axis> over = axes_of(mesh, {"data", "shard"});
  const Placement whole;
  const Placement split = with_split(whole, Dim::elements, over);
  switch (sharding) {
    case Sharding::none:
      break;
    case Sharding::zero1:
      return {.stored = whole, .gradient = split, .state = split};
    case Sharding::zero2:
      return {.stored = whole, .gradient = split, .state = split, .reduce = When::use};
    case Sharding::zero3:
    case Sharding::fsdp:
    case Sharding::hsdp:
      return {.stored = split,
              .gradient = split,
              .state = split,
              .gather = When::use,
              .reduce = When::use,
              .gathers_again = true};
  }
  return {.stored = whole, .gradient = whole, .state = whole};
}

WeightMoves weight_moves(const Mesh& mesh, const WeightRule& rule, std::int64_t elements) {
  const NamedShape flat{"weight", {{Dim::elements, elements}}};
  const Axes copies = set_of(axes_of(mesh, {"data", "shard", "replicate"}));
  return {.gather = moves(mesh, flat, rule.stored, {}),
          .reduce = moves(mesh, flat, with_partial({}, copies), rule.gradient),
          .publish = moves(mesh, flat, rule.state, rule.stored)};
}

}  // namespace plumb
