// What a stage adds to the norm of the whole gradient, and how it is scaled by it.
#include <ATen/ATen.h>

#include <cstring>

#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {

void TorchStage::find_copies(const Block& block, int number) {
  if (settings_.training.gradient_clipping == 0 || !settings_.group) return;
  const std::set<std::string> copies = copies_of_lower_ranks(settings_.model, number, settings_.group->layout(),
                                                             settings_.training, settings_.group->position());
  for (const WeightPtr& weight : block.weights()) {
    if (copies.contains(weight->name)) copies_.insert(weight.get());
  }
}

// Of data-parallel copies the first one's ranks, of a tied table's two ends the embedding's.
void TorchStage::find_squares() {
  sum_tied_gradients();
  sum_partial_gradients();
  squares_ = at::Tensor();
  if (settings_.share.index / settings_.states.count > 0) return;
  std::vector<at::Tensor> own;
  for (const WeightPtr& weight : trained_) {
    const bool of_other_end = weight == tied_head_ && !tied_embedding_;
    if (of_other_end || copies_.contains(weight.get())) continue;
    own.push_back(own_gradient_of(*weight, settings_.states));
  }
  if (own.empty()) return;
  const at::Tensor found = primitives_for(own.front()).exact_squares(own);
  squares_ = at::empty_like(found, found.options().device(at::kCPU).pinned_memory(!found.is_cpu()));
  squares_.copy_(found, /*non_blocking=*/true);
}

kernels::ExactSquares TorchStage::squares() const {
  kernels::ExactSquares::Numbers numbers{};
  if (squares_.defined()) std::memcpy(numbers.data(), squares_.const_data_ptr(), sizeof(numbers));
  return kernels::ExactSquares::from_numbers(numbers);
}

void TorchStage::scale_gradients(double scale) {
  for (const WeightPtr& weight : trained_) own_gradient_of(*weight, settings_.states).mul_(scale);
}

}  // namespace plumb::exec
