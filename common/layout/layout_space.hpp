// The layouts that a scenario leaves open: all meshes of so many ranks with the degrees and orders that are allowed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

// What each axis may be. Degrees: none means any; orders: none means any of tensor, data and pipeline. Depths are of
// 2.5d; none: all that leave a grid of 2 × 2 ranks at least. Barriers are as in a layout.
struct LayoutSpace {
  Layout base = {};  // what is not open
  std::optional<std::vector<int>> pipeline = {};
  std::optional<std::vector<int>> tensor = {};
  std::optional<std::vector<int>> data = {};
  std::vector<TensorKind> kinds = {TensorKind::one_d};
  std::optional<std::vector<int>> depths = {{1}};
  std::vector<bool> sequence_parallel = {false};      // of 1d
  std::vector<bool> asynchronous = {false};           // of 1d with sequence parallelism, 2d and 2.5d
  std::vector<bool> reshard_after_forward = {false};  // of 3d
  std::vector<int> vocabulary_barriers = {0};         // over a pipeline of several ranks; 0: it is whole
  std::optional<std::vector<std::array<MeshAxis, 5>>> orders = {};
};

// The tensor layouts of one degree: by kind, then depth, sequence parallelism and what is asynchronous, or what is
// gathered again, each in the order of the space. Also those whose grid the degree does not make, so that whoever
// weighs them can say so (tensor_grid). Of a degree of one there is one, 1d.
[[nodiscard]] std::vector<TensorLayout> tensor_layouts_of(const LayoutSpace& space, int degree);

// Every layout of the space whose degrees multiply to `ranks`, each once: by tensor degree, then pipeline, then data,
// each in the order that the space gives, ascending where it is any; then vocabulary, then tensor layout, then order. A
// pipeline of one rank has whole vocabularies alone. Orders that nest the axes above one alike are the same mesh: the
// first stands for all. Of any orders the first has tensor innermost, then data, then pipeline. Empty: there is none.
[[nodiscard]] std::vector<Layout> layouts_of(const LayoutSpace& space, int ranks);

// "pipeline auto, tensor 2 or 4, data 1".
[[nodiscard]] std::string degrees_text(const LayoutSpace& space);

}  // namespace plumb
