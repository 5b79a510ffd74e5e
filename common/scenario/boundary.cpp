#include "common/scenario/boundary.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/model/model.hpp"

namespace plumb {
namespace {

// No microbatch is that large; sums over many blocks and microbatches of it still fit 63 bits. Doubles are exact here.
constexpr double most_bytes = 17'592'186'044'416.0;

std::string describe(const BoundaryTensor& tensor) {
  std::string text = tensor.name + " (";
  for (std::size_t i = 0; i < tensor.dimensions.size(); ++i) {
    text += (i == 0 ? "" : " × ") + tensor.dimensions[i].name + " " + std::to_string(tensor.dimensions[i].size);
  }
  return text + ", " + std::string(name_of(tensor.type)) + ")";
}

std::string describe_at(const BoundaryManifest& manifest, std::size_t index) {
  return index < manifest.tensors.size() ? describe(manifest.tensors[index]) : "nothing";
}

}  // namespace

Bytes bytes(const BoundaryTensor& tensor) {
  double exact = static_cast<double>(element_bytes(tensor.type));
  for (const NamedDimension& dimension : tensor.dimensions) exact *= static_cast<double>(dimension.size);
  if (!(exact <= most_bytes)) throw InputError("boundary", describe(tensor) + " is larger than 16 TiB");
  return {static_cast<std::int64_t>(exact)};
}

Bytes bytes(const BoundaryManifest& manifest) {
  Bytes sum;
  for (const BoundaryTensor& tensor : manifest.tensors) sum += bytes(tensor);
  return sum;
}

BoundaryManifest boundary_manifest(const Model& model, const Training& training) {
  return boundary_manifest(model, training, training.sequence);
}

BoundaryManifest boundary_manifest(const Model& model, const Training& training, std::int64_t tokens) {
  return {.tensors = {{.name = "hidden_states",
                       .dimensions = {{.name = "microbatch", .size = training.microbatch},
                                      {.name = "sequence", .size = tokens},
                                      {.name = "hidden", .size = model.hidden}},
                       .type = training.precision}}};
}

std::pair<std::string, std::string> first_difference(const BoundaryManifest& a, const BoundaryManifest& b) {
  const std::size_t tensors = std::max(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < tensors; ++i) {
    const bool both = i < a.tensors.size() && i < b.tensors.size();
    if (!both || a.tensors[i] != b.tensors[i]) return {describe_at(a, i), describe_at(b, i)};
  }
  return {};
}

}  // namespace plumb
