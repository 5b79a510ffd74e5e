// A step of one device whose sums are those of ranks that reduce the gradients of each microbatch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/check/check_progress.hpp"
#include "exec/check/pairwise_tensors.hpp"
#include "exec/check/rank_sums.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {

// ZeRO-2 and FSDP: over the ranks that share out a copy of the states first, then over microbatches, then over copies.
// The gradients of a table that is tied are each rank's own until all are summed.
class MicrobatchSums {
 public:
  // `stage`: the whole model, with the whole batch. Both must outlive this.
  MicrobatchSums(TorchStage& stage, const Plan& plan);

  // F, I and W of step `step`; afterwards the stage's gradients are the sums. Returns its loss.
  double train(std::int64_t step, CheckProgress& progress);

 private:
  using Tensors = std::vector<at::Tensor>;

  [[nodiscard]] Tensors sums_of_copy(int copy, CheckProgress& progress);
  void add_microbatch(int first, int copy, Tensors& sums);
  void run(int microbatch, std::vector<std::vector<RankSums>>& by_slice);
  void use_share(int share);
  void sum_later();

  TorchStage& stage_;
  DataLayout data_;
  int slices_;
  int shards_;
  int degree_;
  int microbatches_;                // of all shares
  std::vector<WeightPtr> at_once_;  // summed for each microbatch
  std::vector<WeightPtr> later_;    // a tied table's two, or none
  std::vector<Tensors> of_share_;   // gradients of these
};

}  // namespace plumb::exec
