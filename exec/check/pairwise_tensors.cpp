#include "exec/check/pairwise_tensors.hpp"

#include <ATen/ATen.h>

namespace plumb::exec {

void PairwiseTensors::add(const at::Tensor& summand) {
  sums_.push_back(summand.clone());
  join(counter_.add());
}

at::Tensor PairwiseTensors::total() {
  join(counter_.end());
  at::Tensor all = std::move(sums_.back());
  sums_.clear();
  return all;
}

void PairwiseTensors::join(int times) {
  for (; times > 0; --times) {
    const at::Tensor last = std::move(sums_.back());
    sums_.pop_back();
    sums_.back().add_(last);
  }
}

}  // namespace plumb::exec
