#include "exec/check/pairwise_tensors.hpp"

#include <ATen/ATen.h>

namespace plumb::exec {

void PairwiseTensors::add(const at::Tensor& summand) {
  sums_.push_back({summand.clone()});
  while (sums_.size() > 1 && sums_[sums_.size() - 2].summands == sums_.back().summands) join();
}

at::Tensor PairwiseTensors::total() {
  while (sums_.size() > 1) join();
  at::Tensor all = std::move(sums_.back().value);
  sums_.clear();
  return all;
}

void PairwiseTensors::join() {
  const Sum last = std::move(sums_.back());
  sums_.pop_back();
  sums_.back().value.add_(last.value);
  sums_.back().summands += last.summands;
}

}  // namespace plumb::exec
