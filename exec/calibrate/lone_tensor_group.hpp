// A tensor group of which one rank is there: its blocks compute and hold what they do in a run, and nothing travels.
#pragma once

#include "exec/stage/tensor/tensor_group.hpp"

namespace plumb::exec {

// What other ranks would give it fills up with what this one has: the sizes count, not the values.
class LoneTensorGroup final : public TensorGroup {
 public:
  explicit LoneTensorGroup(const TensorLayout& layout);

 private:
  [[nodiscard]] at::Tensor summed(const at::Tensor& x, const LocalMove& move) override;
  [[nodiscard]] at::Tensor gathered(const at::Tensor& x, const LocalMove& move) override;
  [[nodiscard]] at::Tensor summed_part(const at::Tensor& x, const LocalMove& move) override;
  [[nodiscard]] at::Tensor joined_rows(const at::Tensor& rows, const std::vector<int>& positions) override;
};

}  // namespace plumb::exec
