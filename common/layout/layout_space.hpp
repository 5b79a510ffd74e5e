// The layouts that a scenario leaves open: all meshes of so many ranks with the degrees and orders that are allowed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

// What each axis may be. Degrees: none means any; orders: none means any of tensor, data and pipeline.
struct LayoutSpace {
  Layout base = {};  // what is not open
  std::optional<std::vector<int>> pipeline = {};
  std::optional<std::vector<int>> tensor = {};
  std::optional<std::vector<int>> data = {};
  std::vector<bool> sequence_parallel = {false};
  std::optional<std::vector<std::array<MeshAxis, 5>>> orders = {};
};

// Every layout of the space whose degrees multiply to `ranks`, each once: by tensor degree, then pipeline, then data,
// each in the order that the space gives, ascending where it is any; then sequence parallelism, then order. A tensor
// degree of one has no sequence parallelism, and orders that nest the axes above one alike are the same mesh: the first
// stands for all. Of a grid only degrees that make one. Of any orders the first has tensor innermost, then data, then
// pipeline. Empty: there is none.
[[nodiscard]] std::vector<Layout> layouts_of(const LayoutSpace& space, int ranks);

// "pipeline auto, tensor 2 or 4, data 1".
[[nodiscard]] std::string degrees_text(const LayoutSpace& space);

}  // namespace plumb
