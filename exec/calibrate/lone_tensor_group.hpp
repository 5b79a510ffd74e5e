// A tensor group of which one rank is there: its blocks compute and hold what they do in a run, and nothing travels.
#pragma once

#include "exec/stage/tensor/tensor_group.hpp"

namespace plumb::exec {

// What other ranks would give it fills up with what this one has: the sizes count, not the values.
class LoneTensorGroup final : public TensorGroup {
 public:
  explicit LoneTensorGroup(const TensorLayout& layout);

  [[nodiscard]] at::Tensor moved(const at::Tensor& x, const PlacedMove& move) override;
  [[nodiscard]] at::Tensor joined_statistics(const at::Tensor& rows, const PlacedMove& move) override;
};

}  // namespace plumb::exec
