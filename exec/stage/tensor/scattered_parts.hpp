// What a reduce-scatter gives to each rank of a tensor that all have summands of.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "common/base/error.hpp"
#include "exec/stage/tensor/local_move.hpp"

namespace plumb::exec {

// Along the move's dimension, in the order of its ranks. Of a matrix whose columns are scattered they are rows of its
// transpose: as one it may have been made.
class ScatteredParts {
 public:
  // Throws RunError where the ranks do not divide the dimension.
  ScatteredParts(const at::Tensor& x, const LocalMove& move)
      : by_columns_(x.dim() == 2 && move.dimension == 1),
        of_(by_columns_ ? x.detach().t() : x.detach()),
        dimension_(by_columns_ ? 0 : move.dimension),
        ranks_(std::ssize(move.group)) {
    if (of_.size(dimension_) % ranks_ != 0) {
      throw RunError("tensor group", "its ranks do not divide what is scattered: the " + describe(*move.move));
    }
  }

  [[nodiscard]] at::Tensor part(std::int64_t whose) const {
    const std::int64_t size = of_.size(dimension_) / ranks_;
    return of_.narrow(dimension_, whose * size, size);
  }
  // [ranks, …], contiguous.
  [[nodiscard]] at::Tensor all() const {
    return of_.unflatten(dimension_, {ranks_, of_.size(dimension_) / ranks_}).movedim(dimension_, 0).contiguous();
  }
  // A part, or a sum of such, in the dimensions of x.
  [[nodiscard]] at::Tensor as_given(const at::Tensor& part) const { return by_columns_ ? part.t() : part; }

 private:
  bool by_columns_;
  at::Tensor of_;
  std::int64_t dimension_;
  std::int64_t ranks_;
};

}  // namespace plumb::exec
