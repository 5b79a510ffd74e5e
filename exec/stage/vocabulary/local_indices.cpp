#include "exec/stage/vocabulary/local_indices.hpp"

#include <ATen/ATen.h>

namespace plumb::exec {

LocalIndices local_indices(const at::Tensor& of_vocabulary, std::int64_t first, std::int64_t count) {
  const at::Tensor shifted = of_vocabulary - first;
  const at::Tensor mine = shifted.ge(0).logical_and_(shifted.lt(count));
  return {.index = shifted.mul_(mine), .mine = mine};
}

}  // namespace plumb::exec
