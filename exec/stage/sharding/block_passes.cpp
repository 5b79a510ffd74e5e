#include "exec/stage/sharding/block_passes.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "common/schedule/move_order.hpp"
#include "exec/stage/sharding/shared_out.hpp"

namespace plumb::exec {

void BlockGathers::enter() {
  if (group_ == nullptr || passed_ > 0) return;
  const auto start = [&] { copied_ += group_->start_gather(units_[started_++].weights, from_); };
  const std::size_t wanted = std::min(left_ + 1 + static_cast<std::size_t>(group_->prefetch()), units_.size());
  if (started_ == left_) start();
  group_->finish_gather();
  while (started_ < wanted) start();
}

void BlockGathers::leave() {
  if (group_ == nullptr || ++passed_ < units_[left_].blocks) return;
  for (const WeightPtr& weight : units_[left_].weights) let_go(*weight);
  ++left_;
  passed_ = 0;
}

void BlockReductions::make(const std::vector<WeightPtr>& weights) {
  if (group_ == nullptr) return;
  for (const WeightPtr& weight : weights) {
    if (weight->own_gradient.defined()) weight->gradient = at::zeros(weight->shape, weight->own_gradient.options());
  }
}

void BlockReductions::reduce(const std::vector<WeightPtr>& weights) {
  if (group_ == nullptr) return;
  for (const WeightPtr& weight : weights) {
    if (weight->own_gradient.defined()) complete_.push_back(weight);
  }
  if (++passed_ < units_.at(unit_)) return;
  ++unit_;
  passed_ = 0;
  const auto most = static_cast<std::size_t>(reductions_under_way(group_->prefetch()));
  while (!under_way_.empty() && under_way_.size() >= most) finish_first();
  std::vector<at::Tensor> gradients;
  for (const WeightPtr& weight : complete_) gradients.push_back(weight->gradient);
  if (!gradients.empty()) group_->start_sums(gradients);
  under_way_.push_back(std::exchange(complete_, {}));
  if (most == 0) finish();
}

void BlockReductions::finish() {
  while (!under_way_.empty()) finish_first();
}

void BlockReductions::finish_first() {
  const c10::NoGradGuard no_grad;
  if (!under_way_.front().empty()) group_->finish_sums();
  for (const WeightPtr& weight : under_way_.front()) {
    weight->own_gradient.add_(part_of(weight->gradient, group_->shard()));
    weight->gradient.reset();
  }
  under_way_.pop_front();
}

}  // namespace plumb::exec
