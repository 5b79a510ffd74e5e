#include "common/placement/placement.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr std::array<std::string_view, 13> dim_names = {"batch",    "sequence", "rows",    "hidden",     "heads",
                                                        "kv_heads", "channels", "width",   "vocabulary", "experts",
                                                        "low_rank", "features", "elements"};

std::int64_t parts_of(const Mesh& mesh, const DimSplit& split) {
  return std::int64_t{size(mesh, set_of(split.by))} * (split.zigzag ? 2 : 1);
}

// What to set, in a scenario or of a model alone.
std::string divisible_hint(Dim dim, std::int64_t parts) {
  const std::string multiple = std::to_string(parts) + " or a multiple of it";
  switch (dim) {
    case Dim::batch:
      return "training: {microbatch: " + std::to_string(parts) + "}, of a model alone --microbatch " + multiple;
    case Dim::sequence:
      return "training: {sequence: ...}, of a model alone --sequence, a multiple of " + std::to_string(parts);
    default:
      return "a tensor degree that divides it";
  }
}

void require_divides(const Mesh& mesh, const std::string& name, const Extent& whole, const DimSplit& split) {
  const std::int64_t parts = parts_of(mesh, split);
  const auto require = [&](std::int64_t extent) {
    if (extent % parts == 0) return;
    throw InputError(name,
                     std::string(name_of(whole.dim)) + " of " + std::to_string(extent) + " cannot be split by " +
                         describe(mesh, set_of(split.by)) + " into " + std::to_string(parts) + " equal parts",
                     divisible_hint(whole.dim, parts));
  };
  if (whole.segments.empty()) require(whole.size);
  for (const std::int64_t segment : whole.segments) require(segment);
}

// Appends a range, to the last one where that ends there.
void append(std::vector<IndexRange>& ranges, const IndexRange& range) {
  if (range.begin >= range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

std::string_view name_of(Dim dim) { return dim_names[static_cast<std::size_t>(dim)]; }

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const Extent& extent : shape) product *= extent.size;
  return product;
}

std::int64_t rows_of(const Shape& shape) {
  std::int64_t product = 1;
  for (const Extent& extent : shape) {
    if (counts_tokens(extent.dim)) product *= extent.size;
  }
  return product;
}

bool has(const Shape& shape, Dim dim) { return std::ranges::find(shape, dim, &Extent::dim) != shape.end(); }

Placement with_split(Placement placement, Dim dim, std::vector<Axis> by, bool zigzag) {
  if (by.empty()) return placement;
  const auto place = std::ranges::lower_bound(placement.splits, dim, {}, &DimSplit::dim);
  if (place != placement.splits.end() && place->dim == dim) {
    if (zigzag != place->zigzag) throw std::logic_error("zigzag of a part of " + std::string(name_of(dim)));
    place->by.insert(place->by.end(), by.begin(), by.end());
  } else {
    placement.splits.insert(place, {.dim = dim, .by = std::move(by), .zigzag = zigzag});
  }
  return placement;
}

Placement with_partial(Placement placement, Axes over) {
  placement.partial = placement.partial | over;
  return placement;
}

const DimSplit* find_split(const Placement& placement, Dim dim) {
  const auto found = std::ranges::find(placement.splits, dim, &DimSplit::dim);
  return found == placement.splits.end() ? nullptr : &*found;
}

Axes split_axes(const Placement& placement) {
  Axes set;
  for (const DimSplit& split : placement.splits) set = set | set_of(split.by);
  return set;
}

Placement restricted(const Placement& placement, const Shape& shape) {
  Placement kept{.splits = {}, .partial = placement.partial};
  for (const DimSplit& split : placement.splits) {
    if (has(shape, split.dim)) kept.splits.push_back(split);
  }
  return kept;
}

Shape local_shape(const Mesh& mesh, const NamedShape& whole, const Placement& placement) {
  Shape local = whole.shape;
  for (Extent& extent : local) {
    const DimSplit* const split = find_split(placement, extent.dim);
    if (split == nullptr) continue;
    const std::int64_t parts = size(mesh, set_of(split->by));
    if (extent.dim == Dim::elements || extent.dim == Dim::vocabulary) {
      extent.size = (extent.size + parts - 1) / parts;
      continue;
    }
    require_divides(mesh, whole.name, extent, *split);
    extent.size /= parts;
    for (std::int64_t& segment : extent.segments) segment /= parts;
  }
  return local;
}

std::int64_t local_elements(const Mesh& mesh, const NamedShape& whole, const Placement& placement) {
  return elements(local_shape(mesh, whole, placement));
}

std::vector<IndexRange> owned(const Mesh& mesh, const Extent& whole, const Placement& placement, int rank) {
  const DimSplit* const split = find_split(placement, whole.dim);
  const std::vector<std::int64_t> segments =
      whole.segments.empty() ? std::vector<std::int64_t>{whole.size} : whole.segments;
  std::vector<IndexRange> ranges;
  std::int64_t first = 0;
  for (const std::int64_t segment : segments) {
    if (split == nullptr) {
      ranges.push_back({first, first + segment});
    } else {
      const std::int64_t parts = parts_of(mesh, *split);
      const std::int64_t each = (segment + parts - 1) / parts;
      const std::int64_t at = position(mesh, rank, split->by);
      ranges.push_back({first + std::min(at * each, segment), first + std::min((at + 1) * each, segment)});
      if (split->zigzag) ranges.push_back({first + (parts - 1 - at) * each, first + (parts - at) * each});
    }
    first += segment;
  }
  std::vector<IndexRange> joined;
  for (const IndexRange& range : ranges) append(joined, range);
  return joined;
}

std::vector<IndexRange> owned_elements(const Mesh& mesh, const Shape& whole, const Placement& placement, int rank) {
  std::vector<IndexRange> ranges{{0, 1}};  // of the dimensions so far, as if they were all
  for (const Extent& extent : whole) {
    const std::vector<IndexRange> mine = owned(mesh, extent, placement, rank);
    const bool all = mine.size() == 1 && mine.front() == IndexRange{0, extent.size};
    std::vector<IndexRange> next;
    for (const IndexRange& range : ranges) {
      if (all) {
        append(next, {range.begin * extent.size, range.end * extent.size});
        continue;
      }
      for (std::int64_t at = range.begin; at < range.end; ++at) {
        for (const IndexRange& part : mine) append(next, {at * extent.size + part.begin, at * extent.size + part.end});
      }
    }
    ranges = std::move(next);
  }
  return ranges;
}

std::string describe(const Mesh& mesh, const Placement& placement) {
  std::string text;
  for (const DimSplit& split : placement.splits) {
    std::string axes;
    for (const Axis axis : split.by) axes += (axes.empty() ? "" : ", ") + mesh.axes[axis.index].name;
    text += (text.empty() ? "" : "; ") + std::string(name_of(split.dim)) + " by " + axes +
            (split.zigzag ? " (zigzag)" : "");
  }
  if (!is_empty(placement.partial)) {
    text += (text.empty() ? "" : "; ") + std::string("partial over ") + describe(mesh, placement.partial);
  }
  return text.empty() ? "copies" : text;
}

std::string describe(const Shape& shape) {
  std::string text;
  for (const Extent& extent : shape) {
    text += (text.empty() ? "" : " × ") + std::string(name_of(extent.dim)) + " " + std::to_string(extent.size);
  }
  return text;
}

}  // namespace plumb
