#include "common/placement/moves.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/base/error.hpp"

namespace plumb {
namespace {

// Axes of one rank neither split nor sum.
Placement without_single(const Mesh& mesh, const Placement& placement) {
  Placement kept;
  for (const DimSplit& split : placement.splits) {
    std::vector<Axis> by = split.by;
    std::erase_if(by, [&](Axis axis) { return size(mesh, axis) == 1; });
    kept = with_split(std::move(kept), split.dim, std::move(by), split.zigzag);
  }
  for (const Axis axis : members(mesh, placement.partial)) {
    if (size(mesh, axis) > 1) kept.partial = kept.partial | set_of(axis);
  }
  return kept;
}

// Goes from one placement to the other; `at_` is how far it has come.
class Way {
 public:
  Way(const Mesh& mesh, const NamedShape& whole, const Placement& from, const Placement& to)
      : mesh_(mesh), whole_(whole), at_(without_single(mesh, from)), to_(without_single(mesh, to)) {
    at_ = restricted(at_, whole.shape);
    to_ = restricted(to_, whole.shape);
  }

  std::vector<Move> all() && {
    const Axes made = without(to_.partial, at_.partial);
    for (const Axis axis : members(mesh_, made)) {
      if (contains(split_axes(at_), axis)) continue;
      throw InputError(whole_.name, "copies over " + mesh_.axes[axis.index].name + " cannot become partial sums");
    }
    for (const Extent& extent : whole_.shape) fill_up(extent.dim);
    for (const Extent& extent : whole_.shape) {
      if (removed(extent.dim).empty()) append(extent.dim);
    }
    for (const Extent& extent : whole_.shape) exchange(extent.dim);
    add_up(without(at_.partial, to_.partial));
    for (const Extent& extent : whole_.shape) {
      while (!removed(extent.dim).empty()) {
        gather(extent.dim);
        fill_up(extent.dim);
      }
    }
    for (const Extent& extent : whole_.shape) append(extent.dim);
    if (at_ != to_) throw std::logic_error(whole_.name + ": no way from one placement to the other");
    return std::move(moves_);
  }

 private:
  [[nodiscard]] static std::vector<Axis> axes_at(const Placement& placement, Dim dim) {
    const DimSplit* const split = find_split(placement, dim);
    return split == nullptr ? std::vector<Axis>{} : split->by;
  }
  [[nodiscard]] static bool is_zigzag(const Placement& placement, Dim dim) {
    const DimSplit* const split = find_split(placement, dim);
    return split != nullptr && split->zigzag;
  }

  // How many axes both begin with: parts of parts can be gathered and taken without touching those.
  [[nodiscard]] std::size_t common(Dim dim) const {
    if (is_zigzag(at_, dim) != is_zigzag(to_, dim)) return 0;
    const std::vector<Axis> have = axes_at(at_, dim);
    const std::vector<Axis> want = axes_at(to_, dim);
    // Zigzag parts of parts are no parts.
    if (is_zigzag(at_, dim) && have != want) return 0;
    std::size_t count = 0;
    while (count < have.size() && count < want.size() && have[count] == want[count]) ++count;
    return count;
  }
  [[nodiscard]] std::vector<Axis> removed(Dim dim) const { return behind(axes_at(at_, dim), common(dim)); }
  [[nodiscard]] std::vector<Axis> added(Dim dim) const { return behind(axes_at(to_, dim), common(dim)); }
  [[nodiscard]] static std::vector<Axis> behind(const std::vector<Axis>& axes, std::size_t count) {
    return {axes.begin() + static_cast<std::ptrdiff_t>(count), axes.end()};
  }

  void go(std::optional<Collective> collective, const std::vector<Axis>& over, Placement next) {
    moves_.push_back({.collective = collective,
                      .over = set_of(over),
                      .from = at_,
                      .to = next,
                      .elements_from = local_elements(mesh_, whole_, at_),
                      .elements_to = local_elements(mesh_, whole_, next)});
    at_ = std::move(next);
  }

  [[nodiscard]] Placement shortened(Placement placement, Dim dim, std::size_t count) const {
    const auto split = std::ranges::find(placement.splits, dim, &DimSplit::dim);
    split->by.resize(split->by.size() - count);
    if (split->by.empty()) placement.splits.erase(split);
    return placement;
  }

  // Of the axes that a dimension gives up, the minor ones that are wanted partial, or those that are not.
  [[nodiscard]] std::vector<Axis> minor_removed(Dim dim, bool partial) const {
    const std::vector<Axis> all = removed(dim);
    std::size_t first = all.size();
    while (first > 0 && contains(to_.partial, all[first - 1]) == partial) --first;
    return behind(all, first);
  }

  // What is split and wanted partial is padded with zeros: the mirror of taking a part of copies.
  void fill_up(Dim dim) {
    const std::vector<Axis> last = minor_removed(dim, true);
    if (last.empty()) return;
    if (is_zigzag(at_, dim) && last != removed(dim)) {
      throw InputError(whole_.name, "a zigzag split cannot become partial over some of its axes");
    }
    go(std::nullopt, last, with_partial(shortened(at_, dim, last.size()), set_of(last)));
  }

  // Splits by what is missing, axis by axis: partial sums are scattered, of copies each rank takes its part.
  void append(Dim dim) {
    const std::vector<Axis> missing = added(dim);
    const Axes sums_of_it = at_.partial & set_of(missing);
    // A zigzag part is not made of the parts of fewer ranks: of all axes at once, or after the sums.
    if (is_zigzag(to_, dim) && !is_empty(sums_of_it) && sums_of_it != set_of(missing)) add_up(sums_of_it);
    for (std::size_t first = 0; first < missing.size();) {
      const bool sums = contains(at_.partial, missing[first]);
      std::size_t end = first;
      while (end < missing.size() && contains(at_.partial, missing[end]) == sums) ++end;
      const std::vector<Axis> over =
          behind({missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(end)}, first);
      if (!sums && !is_empty(split_axes(at_) & set_of(over))) return;  // they still split another dimension
      Placement next = with_split(at_, dim, over, is_zigzag(to_, dim));
      next.partial = without(next.partial, set_of(over));
      go(sums ? std::optional(Collective::reduce_scatter) : std::nullopt, over, std::move(next));
      first = end;
    }
  }

  void exchange(Dim from) {
    const std::vector<Axis> leaving = removed(from);
    if (leaving.empty()) return;
    for (const Extent& extent : whole_.shape) {
      if (extent.dim == from || added(extent.dim) != leaving || !removed(extent.dim).empty()) continue;
      Placement next =
          with_split(shortened(at_, from, leaving.size()), extent.dim, leaving, is_zigzag(to_, extent.dim));
      go(Collective::all_to_all, leaving, std::move(next));
      return;
    }
  }

  void add_up(Axes over) {
    if (is_empty(over)) return;
    Placement next = at_;
    next.partial = without(next.partial, over);
    go(Collective::all_reduce, members(mesh_, over), std::move(next));
  }

  void gather(Dim dim) {
    const std::vector<Axis> leaving = minor_removed(dim, false);
    if (leaving.empty()) return;
    if (is_zigzag(at_, dim) && leaving != removed(dim)) {
      throw InputError(whole_.name, "a zigzag split cannot become partial over some of its axes");
    }
    go(Collective::all_gather, leaving, shortened(at_, dim, leaving.size()));
  }

  const Mesh& mesh_;
  const NamedShape& whole_;
  Placement at_;
  Placement to_;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> moves(const Mesh& mesh, const NamedShape& whole, const Placement& from, const Placement& to) {
  return Way(mesh, whole, from, to).all();
}

double received_elements(const Mesh& mesh, const Move& move) {
  if (!move.collective) return 0;
  const double others = 1.0 - 1.0 / size(mesh, move.over);
  const auto from = static_cast<double>(move.elements_from);
  switch (*move.collective) {
    case Collective::all_reduce:
      return 2 * others * from;
    case Collective::all_gather:
      return others * static_cast<double>(move.elements_to);
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return others * from;
  }
  return 0;
}

double received_elements(const Mesh& mesh, const std::vector<Move>& all) {
  double sum = 0;
  for (const Move& move : all) sum += received_elements(mesh, move);
  return sum;
}

}  // namespace plumb
