#include "common/layout/layout.hpp"

#include <algorithm>
#include <limits>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr std::array<MeshAxis, 5> all_axes = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data,
                                              MeshAxis::pipeline};

std::size_t index(MeshAxis axis) { return static_cast<std::size_t>(axis); }

}  // namespace

std::string_view axis_name(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tensor:
      return "tensor";
    case MeshAxis::context:
      return "context";
    case MeshAxis::expert:
      return "expert";
    case MeshAxis::data:
      return "data";
    case MeshAxis::pipeline:
      return "pipeline";
  }
  return "";
}

int degree(const Layout& layout, MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tensor:
      return layout.tensor.degree;
    case MeshAxis::context:
      return layout.context;
    case MeshAxis::expert:
      return layout.expert;
    case MeshAxis::data:
      return layout.data.degree;
    case MeshAxis::pipeline:
      return layout.pipeline;
  }
  return 1;
}

void require_consistent(const Layout& layout) {
  std::int64_t product = 1;
  for (const MeshAxis axis : all_axes) {
    const std::string name(axis_name(axis));
    if (std::count(layout.order.begin(), layout.order.end(), axis) != 1) {
      throw InputError("layout", "the order of axes must name '" + name + "' exactly once");
    }
    if (degree(layout, axis) < 1) throw InputError("layout", "the degree of '" + name + "' must be at least 1");
    product *= degree(layout, axis);
    if (product > std::numeric_limits<int>::max()) throw InputError("layout", "the degrees multiply to too many ranks");
  }
}

int ranks(const Layout& layout) {
  int product = 1;
  for (const MeshAxis axis : all_axes) product *= degree(layout, axis);
  return product;
}

std::int64_t batch_ways(const Layout& layout) { return std::int64_t{1} * layout.data.degree * layout.expert; }

MeshCoordinates coordinates(const Layout& layout, int rank) {
  MeshCoordinates position{};
  for (const MeshAxis axis : layout.order) {
    position.at(index(axis)) = rank % degree(layout, axis);
    rank /= degree(layout, axis);
  }
  return position;
}

int rank_at(const Layout& layout, const MeshCoordinates& coordinates) {
  int rank = 0;
  int stride = 1;
  for (const MeshAxis axis : layout.order) {
    rank += coordinates.at(index(axis)) * stride;
    stride *= degree(layout, axis);
  }
  return rank;
}

int pipeline_stride(const Layout& layout) {
  MeshCoordinates next{};
  next.at(index(MeshAxis::pipeline)) = 1;
  return layout.pipeline > 1 ? rank_at(layout, next) : ranks(layout);
}

std::vector<int> group(const Layout& layout, int rank, MeshAxis axis) {
  MeshCoordinates position = coordinates(layout, rank);
  std::vector<int> members;
  for (int i = 0; i < degree(layout, axis); ++i) {
    position.at(index(axis)) = i;
    members.push_back(rank_at(layout, position));
  }
  return members;
}

std::string describe(const Layout& layout) {
  const auto abbreviation = [](MeshAxis axis) {
    switch (axis) {
      case MeshAxis::tensor:
        return "tp";
      case MeshAxis::context:
        return "cp";
      case MeshAxis::expert:
        return "ep";
      case MeshAxis::data:
        return "dp";
      case MeshAxis::pipeline:
        return "pp";
    }
    return "";
  };
  constexpr std::array<MeshAxis, 5> shown = {MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert,
                                             MeshAxis::data};
  std::string text;
  for (const MeshAxis axis : shown) {
    if (degree(layout, axis) == 1) continue;
    if (!text.empty()) text += "·";
    text += abbreviation(axis) + std::to_string(degree(layout, axis));
  }
  return text.empty() ? "single" : text;
}

}  // namespace plumb
