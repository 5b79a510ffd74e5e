// What crosses a stage boundary, as a manifest of named tensors that both sides check before anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/units.hpp"
#include "common/model/model.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

struct NamedDimension {
  std::string name = {};  // "microbatch", "sequence", "hidden"
  std::int64_t size = 0;
  bool operator==(const NamedDimension&) const = default;
};

struct BoundaryTensor {
  std::string name = {};  // "hidden_states"
  std::vector<NamedDimension> dimensions = {};
  ElementType type = ElementType::fp32;
  bool operator==(const BoundaryTensor&) const = default;
};

struct BoundaryManifest {
  std::vector<BoundaryTensor> tensors = {};
  bool operator==(const BoundaryManifest&) const = default;
};

// Throws InputError for more than 16 TiB.
[[nodiscard]] Bytes bytes(const BoundaryTensor& tensor);
[[nodiscard]] Bytes bytes(const BoundaryManifest& manifest);

// Between any two stages of this model: the hidden states of one microbatch, or of so many tokens of each of its
// sequences (a slice), in the training precision.
[[nodiscard]] BoundaryManifest boundary_manifest(const Model& model, const Training& training, std::int64_t tokens);
[[nodiscard]] BoundaryManifest boundary_manifest(const Model& model, const Training& training);

// The first tensor that is not the same, as each of the two describes it ("nothing": it has no such tensor).
[[nodiscard]] std::pair<std::string, std::string> first_difference(const BoundaryManifest& a,
                                                                   const BoundaryManifest& b);

}  // namespace plumb
