// What of a stage data-parallel ranks share out, and when this one has all of it.
#include <ATen/ATen.h>

#include <algorithm>

#include "exec/stage/sharding/shared_out.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {

// Gradients that are completed later stay whole.
void TorchStage::share_out(const Block& block) {
  for (const WeightPtr& weight : block.weights()) {
    const bool second = weight == tied_head_ && tied_embedding_;  // of one table, which is shared out already
    if (settings_.sharding.weights && !second) {
      share_out_value(*weight, settings_.states, settings_.training.offload.parameters);
      const ShardGroup* const group = settings_.sharding.group.get();
      if (group != nullptr && group->has_second_copy()) share_out_second_copy(*weight, group->second_shard());
    }
    const bool complete = weight->is_trained() && !completes_later(weight);
    if (settings_.sharding.gradients && complete) share_out_gradient(*weight, settings_.states);
  }
}

// Of the head, where the embedding's is.
void TorchStage::share_table() {
  tied_head_->value = tied_embedding_->value;
  tied_head_->own_value = tied_embedding_->own_value;
  tied_head_->own_on_host = tied_embedding_->own_on_host;
  tied_head_->second_value = tied_embedding_->second_value;
  tied_head_->shape = tied_embedding_->shape;
}

BlockGathers TorchStage::gathers(Way way, bool first) const {
  ShardGroup* const group = settings_.sharding.by_block ? settings_.sharding.group.get() : nullptr;
  if (group == nullptr) return {nullptr, ShardGroup::From::parts, {}};
  std::vector<BlockGathers::Unit> units;
  auto block = blocks_.begin();
  for (const int size : settings_.sharding.units) {
    BlockGathers::Unit& unit = units.emplace_back(BlockGathers::Unit{.blocks = static_cast<std::size_t>(size)});
    for (const auto end = block + size; block != end; ++block) {
      unit.weights.insert(unit.weights.end(), (*block)->weights().begin(), (*block)->weights().end());
    }
  }
  if (way == Way::up) std::ranges::reverse(units);
  const bool second = group->has_second_copy() && !first;
  return {group, second ? ShardGroup::From::second_copy : ShardGroup::From::parts, std::move(units)};
}

BlockReductions TorchStage::reductions() const {
  const DataSharding& sharding = settings_.sharding;
  return {sharding.gradients ? sharding.group.get() : nullptr, {sharding.units.rbegin(), sharding.units.rend()}};
}

void TorchStage::run_weight_gradient(Block& block, int microbatch, BlockReductions& reductions) {
  reductions.make(block.weights());
  block.weight_gradient(microbatch);
  reductions.reduce(block.weights());
  report(block);
}

std::vector<DeviceFloats> TorchStage::own_gradients() {
  std::vector<DeviceFloats> all;
  for (const WeightPtr& weight : trained_) {
    const at::Tensor own = own_gradient_of(*weight, settings_.states);
    all.push_back({.data = own.mutable_data_ptr<float>(), .size = static_cast<std::size_t>(own.numel())});
  }
  return all;
}

// Frozen ones only where they are shared out: no step changes them.
std::vector<Stage::StoredWeight> TorchStage::stored_weights() {
  if (settings_.sharding.by_block) return {};
  std::vector<StoredWeight> all;
  for (const WeightPtr& weight : settings_.sharding.weights ? weights_ : trained_) {
    if (settings_.sharding.weights) make_whole(*weight, settings_.states);
    auto* const data = static_cast<std::byte*>(weight->value.mutable_data_ptr());
    all.push_back({{data, weight->value.nbytes()}, static_cast<std::size_t>(weight->value.element_size())});
  }
  if (tied_embedding_ && tied_head_) share_table();
  return all;
}

void TorchStage::let_go_of_weights() {
  for (const auto& block : blocks_) {
    for (const WeightPtr& weight : block->weights()) let_go(*weight);
  }
}

}  // namespace plumb::exec
