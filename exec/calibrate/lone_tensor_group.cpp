#include "exec/calibrate/lone_tensor_group.hpp"

#include <ATen/ATen.h>

#include <numeric>

#include "common/base/error.hpp"

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

at::Tensor LoneTensorGroup::moved(const at::Tensor& x, const PlacedMove& move) {
  const plumb::Collective collective = *move.move.collective;
  ticks().tick(move, collective);
  const at::Tensor own = x.detach();
  switch (collective) {
    case plumb::Collective::all_reduce:
      return own.clone(at::MemoryFormat::Contiguous);
    case plumb::Collective::all_gather:
      return at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(size()), own), 1);
    case plumb::Collective::reduce_scatter:
      return own.narrow(1, 0, own.size(1) / size()).clone(at::MemoryFormat::Contiguous);
    case plumb::Collective::all_to_all:
      break;
  }
  throw RunError("calibration", "this collective is not executed");
}

at::Tensor LoneTensorGroup::joined_statistics(const at::Tensor& rows, const PlacedMove& move) {
  ticks().tick(move, plumb::Collective::all_reduce);
  return rows.detach().clone();
}

}  // namespace plumb::exec
