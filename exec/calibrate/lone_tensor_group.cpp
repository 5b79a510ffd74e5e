#include "exec/calibrate/lone_tensor_group.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "exec/transport/collectives/rank_group.hpp"

namespace plumb::exec {

LoneTensorGroup::LoneTensorGroup(const TensorLayout& layout)
    : TensorGroup(nullptr, {.layout = layout, .ranks = ranks_from(0, layout.degree)}) {}

at::Tensor LoneTensorGroup::summed(const at::Tensor& x) { return x.detach().clone(at::MemoryFormat::Contiguous); }

at::Tensor LoneTensorGroup::gathered(const at::Tensor& x) {
  return at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(size()), x.detach()), 1);
}

at::Tensor LoneTensorGroup::summed_part(const at::Tensor& x) {
  return x.detach().narrow(1, 0, x.size(1) / size()).clone(at::MemoryFormat::Contiguous);
}

at::Tensor LoneTensorGroup::joined_rows(const at::Tensor& rows) { return rows.detach().clone(); }

}  // namespace plumb::exec
