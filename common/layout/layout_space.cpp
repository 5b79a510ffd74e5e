#include "common/layout/layout_space.hpp"

#include <algorithm>

#include "common/layout/tensor_grid.hpp"

namespace plumb {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> small;
  std::vector<int> large;
  for (int divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor != 0) continue;
    small.push_back(divisor);
    if (divisor != number / divisor) large.push_back(number / divisor);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::vector<int> any_depths(int degree) {
  std::vector<int> depths = divisors(degree);
  std::erase_if(depths, [&](int depth) { return depth == 1 || depth > degree / 4; });
  return depths;
}

std::vector<std::array<MeshAxis, 5>> any_order() {
  using enum MeshAxis;
  std::vector<std::array<MeshAxis, 5>> orders;
  for (const std::array<MeshAxis, 3>& nest : {std::array{tensor, data, pipeline},
                                              {tensor, pipeline, data},
                                              {data, tensor, pipeline},
                                              {pipeline, tensor, data},
                                              {data, pipeline, tensor},
                                              {pipeline, data, tensor}}) {
    std::array<MeshAxis, 5> order{};
    std::size_t next = 0;
    for (const MeshAxis axis : nest) {
      order.at(next++) = axis;
      if (axis != tensor) continue;
      order.at(next++) = context;
      order.at(next++) = expert;
    }
    orders.push_back(order);
  }
  return orders;
}

// The axes above one, innermost first: what the placement of ranks depends on.
std::vector<MeshAxis> nesting(const Layout& layout) {
  std::vector<MeshAxis> axes;
  for (const MeshAxis axis : layout.order) {
    if (degree(layout, axis) > 1) axes.push_back(axis);
  }
  return axes;
}

void append_orders(const LayoutSpace& space, Layout layout, std::vector<Layout>& layouts) {
  std::vector<std::vector<MeshAxis>> seen;
  for (const auto& order : space.orders ? *space.orders : any_order()) {
    layout.order = order;
    std::vector<MeshAxis> axes = nesting(layout);
    if (std::ranges::find(seen, axes) != seen.end()) continue;
    seen.push_back(std::move(axes));
    layouts.push_back(layout);
  }
}

void append_tensors(const LayoutSpace& space, const std::vector<TensorLayout>& tensors, Layout layout,
                    std::vector<Layout>& layouts) {
  for (const TensorLayout& tensor : tensors) {
    layout.tensor = tensor;
    append_orders(space, layout, layouts);
  }
}

// Of one kind, by what that kind has of choices; none asynchronous.
std::vector<TensorLayout> of_kind(const LayoutSpace& space, TensorLayout tensor) {
  std::vector<TensorLayout> all;
  const auto add = [&](const auto& values, auto TensorLayout::*which) {
    for (const auto value : values) (all.emplace_back(tensor)).*which = value;
  };
  switch (tensor.kind) {
    case TensorKind::one_d:
      add(space.sequence_parallel, &TensorLayout::sequence_parallel);
      break;
    case TensorKind::two_d:
      all.push_back(tensor);
      break;
    case TensorKind::two_and_half_d:
      add(space.depths ? *space.depths : any_depths(tensor.degree), &TensorLayout::depth);
      break;
    case TensorKind::three_d:
      add(space.reshard_after_forward, &TensorLayout::reshard_after_forward);
      break;
  }
  return all;
}

}  // namespace

std::vector<TensorLayout> tensor_layouts_of(const LayoutSpace& space, int degree) {
  if (degree == 1) return {TensorLayout{}};
  std::vector<TensorLayout> all;
  for (const TensorKind kind : space.kinds) {
    for (const TensorLayout& one : of_kind(space, {.degree = degree, .kind = kind})) {
      for (const bool asynchronous : goes_in_pieces(one) ? space.asynchronous : std::vector<bool>{false}) {
        all.emplace_back(one).asynchronous = asynchronous;
      }
    }
  }
  return all;
}

std::vector<Layout> layouts_of(const LayoutSpace& space, int ranks) {
  const int others = space.base.context * space.base.expert;
  if (ranks < 1 || ranks % others != 0) return {};
  const std::vector<int> any = divisors(ranks / others);
  const auto allowed = [&](const std::optional<std::vector<int>>& degrees) -> const std::vector<int>& {
    return degrees ? *degrees : any;
  };
  std::vector<Layout> layouts;
  Layout layout = space.base;
  for (const int degree : allowed(space.tensor)) {
    const std::vector<TensorLayout> tensors = tensor_layouts_of(space, degree);
    for (const int pipeline : allowed(space.pipeline)) {
      for (const int data : allowed(space.data)) {
        if (std::int64_t{degree} * pipeline * data * others != ranks) continue;
        layout.pipeline = pipeline;
        layout.data.degree = data;
        for (const int barriers : pipeline > 1 ? space.vocabulary_barriers : std::vector{0}) {
          layout.vocabulary_barriers = barriers;
          append_tensors(space, tensors, layout, layouts);
        }
      }
    }
  }
  return layouts;
}

std::string degrees_text(const LayoutSpace& space) {
  const auto text = [](const std::optional<std::vector<int>>& degrees) {
    if (!degrees) return std::string("auto");
    std::string some;
    for (const int degree : *degrees) some += (some.empty() ? "" : " or ") + std::to_string(degree);
    return some;
  };
  return "pipeline " + text(space.pipeline) + ", tensor " + text(space.tensor) + ", data " + text(space.data);
}

}  // namespace plumb
