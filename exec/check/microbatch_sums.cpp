#include "exec/check/microbatch_sums.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace plumb::exec {

MicrobatchSums::MicrobatchSums(TorchStage& stage, const Plan& plan)
    : stage_(stage),
      data_(plan.layout.data),
      slices_(plan.schedule.slices),
      shards_(state_shards(plan.layout)),
      degree_(plan.layout.data.degree),
      microbatches_(plan.schedule.microbatches * degree_),
      later_(stage.completed_later()) {
  for (const WeightPtr& weight : stage.trained_weights()) {
    if (std::ranges::find(later_, weight) == later_.end()) at_once_.push_back(weight);
  }
  for (int share = 0; share < degree_; ++share) {
    Tensors& own = of_share_.emplace_back();
    for (const WeightPtr& weight : later_) own.push_back(at::zeros_like(weight->gradient));
  }
}

double MicrobatchSums::train(std::int64_t step, CheckProgress& progress) {
  stage_.begin_step(step);
  std::vector<PairwiseTensors> over_copies(at_once_.size());
  for (int copy = 0; copy < degree_ / shards_; ++copy) {
    const Tensors sums = sums_of_copy(copy, progress);
    for (std::size_t i = 0; i < sums.size(); ++i) over_copies[i].add(sums[i]);
  }
  stage_.end_step();
  for (std::size_t i = 0; i < at_once_.size(); ++i) at_once_[i]->gradient.copy_(over_copies[i].total());
  sum_later();
  return stage_.loss();
}

MicrobatchSums::Tensors MicrobatchSums::sums_of_copy(int copy, CheckProgress& progress) {
  Tensors sums;
  for (const WeightPtr& weight : at_once_) sums.push_back(at::zeros_like(weight->gradient));
  for (int first = 0; first < microbatches_; first += degree_ * slices_) {
    add_microbatch(first, copy, sums);
    progress.add(shards_ * slices_);
  }
  return sums;
}

void MicrobatchSums::add_microbatch(int first, int copy, Tensors& sums) {
  std::vector<std::vector<RankSums>> by_slice(static_cast<std::size_t>(slices_));
  for (auto& of_slice : by_slice) of_slice.assign(at_once_.size(), RankSums(data_));
  for (int share = copy * shards_; share < (copy + 1) * shards_; ++share) {
    use_share(share);
    run(first + share * slices_, by_slice);
  }
  for (auto of_slice = by_slice.rbegin(); of_slice != by_slice.rend(); ++of_slice) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add_((*of_slice)[i].total());
  }
}

void MicrobatchSums::run(int microbatch, std::vector<std::vector<RankSums>>& by_slice) {
  for (int slice = 0; slice < slices_; ++slice) (void)stage_.forward(microbatch + slice, {});
  for (int slice = slices_; slice-- > 0;) {
    (void)stage_.input_gradient(microbatch + slice, {});
    stage_.weight_gradient(microbatch + slice);
    for (std::size_t i = 0; i < at_once_.size(); ++i) {
      by_slice[static_cast<std::size_t>(slice)][i].add(at_once_[i]->gradient);
      at_once_[i]->gradient.zero_();
    }
  }
}

void MicrobatchSums::use_share(int share) {
  for (std::size_t i = 0; i < later_.size(); ++i) later_[i]->gradient = of_share_[static_cast<std::size_t>(share)][i];
}

// Of each share its own first.
void MicrobatchSums::sum_later() {
  if (later_.empty()) return;
  RankSums over_ranks(data_);
  PairwiseTensors over_copies;
  for (int share = 0; share < degree_; ++share) {
    const Tensors& own = of_share_[static_cast<std::size_t>(share)];
    for (std::size_t i = 1; i < own.size(); ++i) own.front().add_(own[i]);
    over_ranks.add(own.front());
    if ((share + 1) % shards_ == 0) over_copies.add(over_ranks.total());
  }
  stage_.sum_tied_gradients();  // so that no step does it again
  later_.front()->gradient.copy_(over_copies.total());
}

}  // namespace plumb::exec
