// What a stage adds to the norm of the whole gradient, and how it is scaled by it.
#include <ATen/ATen.h>

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
void TorchStage::add_squares(ExactSquares& sum) {
  sum_tied_gradients();
  sum_partial_gradients();
  if (settings_.share.index / settings_.states.count > 0) return;
  for (const WeightPtr& weight : trained_) {
    const bool of_other_end = weight == tied_head_ && !tied_embedding_;
    if (of_other_end || copies_.contains(weight.get())) continue;
    const at::Tensor own = own_gradient_of(*weight, settings_.states);
    sum.add({own.const_data_ptr<float>(), static_cast<std::size_t>(own.numel())});
  }
}

void TorchStage::scale_gradients(double scale) {
  for (const WeightPtr& weight : trained_) own_gradient_of(*weight, settings_.states).mul_(scale);
}

}  // namespace plumb::exec
