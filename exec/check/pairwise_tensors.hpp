// Sums of tensors in pairs of neighbours, one after the other: as ranks of a group are added up
// (exec/transport/collectives/sum.hpp), without all of them at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace plumb::exec {

class PairwiseTensors {
 public:
  // Copies.
  void add(const at::Tensor& summand);
  // Of all that were added, at least one. Afterwards it is empty.
  [[nodiscard]] at::Tensor total();

 private:
  struct Sum {
    at::Tensor value;
    int summands = 1;
  };
  void join();

  std::vector<Sum> sums_;  // the largest first, no two of a size
};

}  // namespace plumb::exec
