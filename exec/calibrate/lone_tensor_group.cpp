#include "exec/calibrate/lone_tensor_group.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "exec/transport/collectives/rank_group.hpp"

namespace plumb::exec {

LoneTensorGroup::LoneTensorGroup(const TensorLayout& layout)
    : TensorGroup(nullptr, {.layout = layout, .ranks = ranks_from(0, layout.degree)}) {}

at::Tensor LoneTensorGroup::summed(const at::Tensor& x, const LocalMove& /*move*/) {
  return x.detach().clone(at::MemoryFormat::Contiguous);
}

at::Tensor LoneTensorGroup::gathered(const at::Tensor& x, const LocalMove& move) {
  return at::cat(std::vector<at::Tensor>(move.group.size(), x.detach()), move.dimension);
}

at::Tensor LoneTensorGroup::summed_part(const at::Tensor& x, const LocalMove& move) {
  return x.detach()
      .narrow(move.dimension, 0, x.size(move.dimension) / std::ssize(move.group))
      .clone(at::MemoryFormat::Contiguous);
}

at::Tensor LoneTensorGroup::joined_rows(const at::Tensor& rows, const std::vector<int>& /*positions*/) {
  return rows.detach().clone();
}

}  // namespace plumb::exec
