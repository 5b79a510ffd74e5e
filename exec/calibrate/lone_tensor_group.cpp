#include "exec/calibrate/lone_tensor_group.hpp"

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

namespace plumb::exec {
namespace {

std::vector<int> all_ranks(int degree) {
  std::vector<int> ranks(static_cast<std::size_t>(degree));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LoneTensorGroup::LoneTensorGroup(const TensorLayout& layout)
    : TensorGroup(nullptr, {.layout = layout, .ranks = all_ranks(layout.degree)}) {}

at::Tensor LoneTensorGroup::summed(const at::Tensor& x) { return x.detach().clone(at::MemoryFormat::Contiguous); }

at::Tensor LoneTensorGroup::gathered(const at::Tensor& x) {
  return at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(size()), x.detach()), 1);
}

at::Tensor LoneTensorGroup::summed_part(const at::Tensor& x) {
  return x.detach().narrow(1, 0, x.size(1) / size()).clone(at::MemoryFormat::Contiguous);
}

at::Tensor LoneTensorGroup::joined_rows(const at::Tensor& rows) { return rows.detach().clone(); }

}  // namespace plumb::exec
