// Sums over data-parallel ranks as one device makes them: of what it computes for each rank, with the bits of theirs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/layout/layout.hpp"
#include "exec/check/pairwise_tensors.hpp"

namespace plumb::exec {

// In pairs of neighbours (exec/transport/collectives/sum.hpp), or where gradients travel as int4 as their way goes
// (exec/transport/collectives/quantised_sums.hpp): part by part, of every rank's rounding.
class RankSums {
 public:
  explicit RankSums(const DataLayout& data) : inside_(data.quantized_gradients) {}

  // In the order of the ranks. Copies.
  void add(const at::Tensor& summand);
  // Of all that were added, at least one. Afterwards it is empty.
  [[nodiscard]] at::Tensor total();

 private:
  [[nodiscard]] at::Tensor part_of_total(int part) const;

  int inside_;  // ranks among which int4 goes first; 0: nothing is quantised
  PairwiseTensors pairs_;
  std::vector<at::Tensor> summands_;  // if it is
};

}  // namespace plumb::exec
