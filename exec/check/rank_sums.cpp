#include "exec/check/rank_sums.hpp"

#include <ATen/ATen.h>

#include "common/cost/block_quantisation.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/transport/collectives/quantised_values.hpp"

namespace plumb::exec {
namespace {

// Of a flat fp32 tensor, what comes of it where it travels.
at::Tensor rounded(const at::Tensor& values) {
  const auto count = static_cast<std::size_t>(values.numel());
  const at::Tensor own = values.contiguous();
  std::vector<std::byte> blocks(quantised_size(count, quantised_gradient_bits));
  quantise({own.const_data_ptr<float>(), count}, quantised_gradient_bits, blocks);
  const at::Tensor back = at::empty_like(own);
  dequantise(blocks, quantised_gradient_bits, {back.mutable_data_ptr<float>(), count});
  return back;
}

}  // namespace

void RankSums::add(const at::Tensor& summand) {
  if (inside_ == 0) return pairs_.add(summand);
  summands_.push_back(summand.clone());
}

at::Tensor RankSums::part_of_total(int part) const {
  const auto ranks = static_cast<int>(summands_.size());
  std::vector<at::Tensor> groups;
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor own = part_of(summands_[static_cast<std::size_t>(rank)], {.index = part, .count = ranks});
    if (rank % inside_ == 0) groups.push_back(at::zeros_like(own));
    groups.back().add_(inside_ > 1 ? rounded(own) : own);
  }
  if (groups.size() == 1) return groups.front();
  at::Tensor total = at::zeros_like(groups.front());
  for (const at::Tensor& group : groups) total.add_(rounded(group));
  return total;
}

at::Tensor RankSums::total() {
  if (inside_ == 0) return pairs_.total();
  at::Tensor total = at::empty_like(summands_.front());
  const auto ranks = static_cast<int>(summands_.size());
  for (int part = 0; part < ranks; ++part) {
    part_of(total, {.index = part, .count = ranks}).copy_(part_of_total(part));
  }
  summands_.clear();
  return total;
}

}  // namespace plumb::exec
