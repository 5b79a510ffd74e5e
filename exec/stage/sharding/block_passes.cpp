#include "exec/stage/sharding/block_passes.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "exec/stage/sharding/shared_out.hpp"

namespace plumb::exec {

void BlockGathers::enter() {
  if (group_ == nullptr) return;
  const std::size_t wanted = std::min(left_ + (group_->beside() ? 2 : 1), blocks_.size());
  if (started_ == left_) copied_ += group_->start_gather(*blocks_[started_++], from_);
  group_->finish_gather();
  while (started_ < wanted) copied_ += group_->start_gather(*blocks_[started_++], from_);
}

void BlockGathers::leave() {
  if (group_ == nullptr) return;
  for (const WeightPtr& weight : *blocks_[left_]) let_go(*weight);
  ++left_;
}

void BlockReductions::make(const std::vector<WeightPtr>& weights) {
  if (group_ == nullptr) return;
  for (const WeightPtr& weight : weights) {
    if (weight->own_gradient.defined()) weight->gradient = at::zeros(weight->shape, weight->own_gradient.options());
  }
}

void BlockReductions::reduce(const std::vector<WeightPtr>& weights) {
  if (group_ == nullptr) return;
  finish();
  std::vector<at::Tensor> gradients;
  for (const WeightPtr& weight : weights) {
    if (!weight->own_gradient.defined()) continue;
    gradients.push_back(weight->gradient);
    under_way_.push_back(weight);
  }
  group_->start_sums(gradients);
  if (!group_->beside()) finish();
}

void BlockReductions::finish() {
  if (under_way_.empty()) return;
  const c10::NoGradGuard no_grad;
  group_->finish_sums();
  for (const WeightPtr& weight : under_way_) {
    weight->own_gradient.add_(part_of(weight->gradient, group_->shard()));
    weight->gradient.reset();
  }
  under_way_.clear();
}

}  // namespace plumb::exec
