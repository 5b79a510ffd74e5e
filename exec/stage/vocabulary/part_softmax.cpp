#include "exec/stage/vocabulary/part_softmax.hpp"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

constexpr std::int64_t row_chunks = 8;  // of logits, so that there are no two of them

at::Tensor largest_of(const TokenStatistics& statistics) { return statistics.narrow(-1, 0, 1); }
at::Tensor sum_of(const TokenStatistics& statistics) { return statistics.narrow(-1, 1, 1); }
at::Tensor target_of(const TokenStatistics& statistics) { return statistics.narrow(-1, 2, 1); }

}  // namespace

PartLogits part_logits(at::Tensor logits, const at::Tensor& targets, std::int64_t first_row) {
  const at::Tensor wide = logits.to(wide_type(logits.scalar_type()));
  logits.reset();
  LocalIndices local = local_indices(targets.reshape({-1, 1}), first_row, wide.size(1));
  const at::Tensor largest = std::get<0>(wide.max(1, /*keepdim=*/true));
  const std::vector<at::Tensor> largest_of_chunk = largest.chunk(row_chunks);
  std::vector<at::Tensor> sums;
  for (const at::Tensor& some : wide.chunk(row_chunks)) {
    sums.push_back((some - largest_of_chunk[sums.size()]).exp_().sum(1, /*keepdim=*/true));
  }
  const at::Tensor target = wide.gather(1, local.index).mul_(local.mine);
  return {.logits = wide, .targets = std::move(local), .statistics = at::cat({largest, at::cat(sums), target}, 1)};
}

TokenStatistics joined_statistics(const at::Tensor& of_parts) {
  const at::Tensor largest = std::get<0>(largest_of(of_parts).max(0));
  const at::Tensor sum = (largest_of(of_parts) - largest).exp_().mul_(sum_of(of_parts)).sum(0);
  return at::cat({largest, sum, target_of(of_parts).sum(0)}, 1);
}

at::Tensor log_sum(const TokenStatistics& of_all) { return sum_of(of_all).log().add_(largest_of(of_all)); }

at::Tensor mean_loss(const TokenStatistics& of_all) { return (target_of(of_all) - log_sum(of_all)).mean().neg_(); }

at::Tensor log_softmax(PartLogits& part, const TokenStatistics& of_all) {
  return std::exchange(part.logits, {}).sub_(log_sum(of_all));
}

at::Tensor gradient_of_logits(at::Tensor log_softmax, const LocalIndices& targets, const at::Tensor& scale) {
  log_softmax.exp_().scatter_add_(1, targets.index, targets.mine.to(log_softmax.scalar_type()).neg_());
  return log_softmax.mul_(scale);
}

at::Tensor own_softmax(PartLogits& part, at::ScalarType type) {
  at::Tensor softmax = std::exchange(part.logits, {});
  softmax.sub_(largest_of(part.statistics)).exp_().div_(sum_of(part.statistics));
  return softmax.to(type);
}

at::Tensor scale_of_part(const PartLogits& part, const TokenStatistics& of_all) {
  return (largest_of(part.statistics) - log_sum(of_all)).exp_().mul_(sum_of(part.statistics));
}

}  // namespace plumb::exec
