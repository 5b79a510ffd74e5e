// Indices into one rank's part of a vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace plumb::exec {

// `count` from `first` on; those of other ranks are 0, and `mine` false.
struct LocalIndices {
  at::Tensor index;
  at::Tensor mine;
};
[[nodiscard]] LocalIndices local_indices(const at::Tensor& of_vocabulary, std::int64_t first, std::int64_t count);

}  // namespace plumb::exec
