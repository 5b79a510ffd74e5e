// What a stage on LibTorch lets others sum, and what it sums itself before.
#include <ATen/ATen.h>

#include <algorithm>

#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
namespace {

DeviceFloats floats_of(const at::Tensor& gradient) {
  return {.data = gradient.mutable_data_ptr<float>(), .size = static_cast<std::size_t>(gradient.numel())};
}

}  // namespace

bool TorchStage::completes_later(const WeightPtr& weight) const {
  return weight == tied_embedding_ || weight == tied_head_ ||
         std::ranges::any_of(partial_, [&](const Partial& partial) { return partial.first == weight; });
}

std::vector<WeightPtr> TorchStage::completed_later() const {
  std::vector<WeightPtr> all;
  for (const auto& block : blocks_) {
    std::ranges::copy_if(block->weights(), std::back_inserter(all),
                         [&](const WeightPtr& weight) { return weight->is_trained() && completes_later(weight); });
  }
  return all;
}

void TorchStage::report(const Block& block) {
  if (!complete_) return;
  for (const WeightPtr& weight : block.weights()) {
    if (!weight->is_trained() || completes_later(weight)) continue;
    reported_.insert(weight.get());
    complete_(floats_of(weight->gradient));
  }
}

std::vector<DeviceFloats> TorchStage::gradients() {
  sum_tied_gradients();  // what is summed then is the whole gradient of the table
  sum_partial_gradients();
  std::vector<DeviceFloats> all;
  for (const WeightPtr& weight : trained_) {
    if (weight->gradient.defined() && !reported_.contains(weight.get())) all.push_back(floats_of(weight->gradient));
  }
  return all;
}

DeviceFloats TorchStage::tied_gradient() {
  if (!tied_embedding_ == !tied_head_ || settings_.training.lora) {
    return {};
  }
  return floats_of((tied_embedding_ ? tied_embedding_ : tied_head_)->gradient);
}

void TorchStage::sum_tied_gradients() {
  if (tied_embedding_ && tied_head_ && tied_head_->is_trained() && !tied_summed_) {
    tied_embedding_->gradient.add_(tied_head_->gradient);
    tied_summed_ = true;
  }
}

// Once a step, before replicas' gradients are summed or the optimizer applies them.
void TorchStage::sum_partial_gradients() {
  if (partial_summed_) return;
  for (const auto& [weight, summands] : partial_) settings_.group->sum_in_place(weight->gradient, summands);
  partial_summed_ = true;
}

void TorchStage::sum_with_replica(TorchStage& replica) {
  if (tied_embedding_ && tied_head_ && tied_head_->is_trained()) {
    tied_embedding_->gradient.add_(replica.tied_head_->gradient);
    replica.tied_embedding_->gradient.add_(tied_head_->gradient);
    tied_summed_ = replica.tied_summed_ = true;
  }
  for (std::size_t index = 0; index < trained_.size(); ++index) {
    trained_[index]->gradient.add_(replica.trained_[index]->gradient);
    replica.trained_[index]->gradient.copy_(trained_[index]->gradient);
  }
}

}  // namespace plumb::exec
