// Sums of tensors in pairs of neighbours, one after the other: as ranks of a group are added up
// (exec/transport/collectives/sum.hpp), without all of them at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "exec/transport/collectives/pairwise_counter.hpp"

namespace plumb::exec {

class PairwiseTensors {
 public:
  // Copies.
  void add(const at::Tensor& summand);
  // Of all that were added, at least one. Afterwards it is empty.
  [[nodiscard]] at::Tensor total();

 private:
  void join(int times);

  std::vector<at::Tensor> sums_;
  PairwiseCounter counter_;  // of these
};

}  // namespace plumb::exec
