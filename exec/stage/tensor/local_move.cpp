#include "exec/stage/tensor/local_move.hpp"

#include <algorithm>
#include <optional>

#include "common/base/error.hpp"
#include "exec/stage/tensor/move_ticks.hpp"

namespace plumb::exec {
namespace {

std::vector<Axis> axes_at(const Placement& placement, Dim dim) {
  const DimSplit* const split = find_split(placement, dim);
  return split == nullptr ? std::vector<Axis>{} : split->by;
}

// What is gathered or scattered, and the axes that it loses or wins: the minor ones.
struct Changed {
  Dim dim = Dim::features;
  std::vector<Axis> by = {};
};
std::optional<Changed> changed(const Move& move, const Shape& whole) {
  for (const Extent& extent : whole) {
    const std::vector<Axis> from = axes_at(move.from, extent.dim);
    const std::vector<Axis> to = axes_at(move.to, extent.dim);
    if (from == to) continue;
    const std::vector<Axis>& more = from.size() > to.size() ? from : to;
    return Changed{.dim = extent.dim,
                   .by = {more.begin() + static_cast<std::ptrdiff_t>(std::min(from.size(), to.size())), more.end()}};
  }
  return std::nullopt;
}

const NamedShape* find_weight(const PlacedSite& site, const std::string& name) {
  const auto found = std::ranges::find(site.weights, name, [](const PlacedTensor& each) { return each.whole.name; });
  return found == site.weights.end() ? nullptr : &found->whole;
}

std::ptrdiff_t place_in(const Shape& shape, Dim dim) {
  return std::ranges::find(shape, dim, &Extent::dim) - shape.begin();
}

// A matrix has first what its product makes of each token; of a table that is looked up the rows are its inputs.
int dimension_of_weight(const PlacedSite& site, const Shape& whole, Dim dim) {
  if (whole.size() == 1 || site.kind == OperationKind::lookup) return static_cast<int>(place_in(whole, dim));
  return has(site.outputs.front().whole.shape, dim) ? 0 : 1;
}

int dimension_of_value(const Shape& whole, Dim dim) {
  constexpr std::ptrdiff_t features = 2;  // all that stands behind sequences and tokens
  return static_cast<int>(std::min(place_in(whole, dim), features));
}

}  // namespace

LocalMove local_move(const PlacedBlock& block, const PlacedMove* move, int position) {
  if (move == nullptr) return {};
  LocalMove made{
      .move = move, .group = group(block.mesh, position, move->move.over), .place = move - block.moves.data()};
  if (*move->move.collective == Collective::all_reduce) return made;
  const PlacedSite& site = site_of(block, move->site);
  const NamedShape* const weight = find_weight(site, move->tensor);
  const PlacedTensor* const value = find_value(site, move->tensor);
  if (weight == nullptr && value == nullptr) throw RunError("placement", "no tensor for the " + describe(*move));
  const Shape& whole = weight != nullptr ? weight->shape : value->whole.shape;
  const std::optional<Changed> what = changed(move->move, whole);
  if (!what) throw RunError("placement", "nothing changes by the " + describe(*move));
  const auto part = [&](int rank) { return plumb::position(block.mesh, rank, what->by); };
  if (!std::ranges::is_sorted(made.group, {}, part)) {
    throw RunError("placement", "the ranks have their parts in another order: the " + describe(*move));
  }
  made.dimension =
      weight != nullptr ? dimension_of_weight(site, whole, what->dim) : dimension_of_value(whole, what->dim);
  return made;
}

}  // namespace plumb::exec
