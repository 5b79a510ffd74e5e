#include "exec/stage/torch_stage.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

#include "common/base/error.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::exec {

Payload to_payload(at::Tensor tensor) {
  auto owner = std::make_shared<at::Tensor>(std::move(tensor));
  auto* const data = static_cast<std::byte*>(owner->mutable_data_ptr());
  const std::size_t size = owner->nbytes();
  return {.owner = std::move(owner), .data = data, .size = size};
}

TorchStage::TorchStage(TorchStageSettings settings, std::shared_ptr<const Corpus> corpus)
    : settings_(std::move(settings)),
      slices_(slices_of(settings_.slices, settings_.slice_tokens, settings_.training.sequence)),
      corpus_(std::move(corpus)) {
  if (settings_.logs_routing) routing_ = &own_routing_;
  for (int block = settings_.blocks.first; block < settings_.blocks.last; ++block) {
    blocks_.push_back(std::make_unique<Block>(
        settings_.model, block, settings_.training, settings_.numerics,
        BlockSources{
            .group = settings_.group, .weights = settings_.weights, .part = settings_.part, .table = settings_.table}));
    add_weights_of_last_block();
  }
  trained_ = trained(weights_);
  if (settings_.numerics.compute != at::kDouble) {
    optimizer_ = std::make_unique<WeightOptimizer>(trained_, settings_.training, settings_.states);
  }
}

// What is shared out goes at once, so that the stage is never there as a whole.
void TorchStage::add_weights_of_last_block() {
  const Block& block = *blocks_.back();
  const bool tied = settings_.model.tied_embeddings;
  const bool is_head = is_last() && static_cast<int>(blocks_.size()) == settings_.blocks.last - settings_.blocks.first;
  if (tied && is_first() && blocks_.size() == 1) tied_embedding_ = block.weights().front();
  for (const WeightPtr& weight : block.weights()) {
    if (tied && is_head && weight->name == "embedding.weight") {
      tied_head_ = weight;
      if (tied_embedding_) continue;  // one table, two gradients
    }
    if (settings_.has_table_of_embedding && weight->name == "embedding.weight") {  // the part that has made it has it
      weight->value.reset();
      weight->gradient.reset();
      continue;
    }
    weights_.push_back(weight);
    std::vector<int> summands = block.summands(*weight);
    if (weight->is_trained() && !summands.empty()) partial_.emplace_back(weight, std::move(summands));
  }
  find_copies(block, settings_.blocks.first + static_cast<int>(blocks_.size()) - 1);
  share_out(block);
  if (tied_embedding_ && tied_head_) share_table();
}

bool TorchStage::is_last() const { return settings_.blocks.last == head_block(settings_.model) + 1; }

void TorchStage::begin_step(std::int64_t step) {
  step_ = step;
  losses_.assign(static_cast<std::size_t>(settings_.microbatches), 0.0);
  zero_gradients();
  put_batch_on_device();
  if (settings_.update_every == 0) return;
  newest_ = 0;
  versions_.clear();
  for (const std::int32_t version : settings_.versions) ++versions_[version].uses_left;
  for (const WeightPtr& weight : weights_) versions_[0].values.push_back(weight->value);
}

// All of the step's at once: copies from the host's memory would wait for the device between its microbatches.
void TorchStage::put_batch_on_device() {
  inputs_.clear();
  targets_.clear();
  made_losses_.clear();
  const c10::Device device = settings_.numerics.device;
  if (device.is_cpu()) return;
  made_losses_.resize(static_cast<std::size_t>(settings_.microbatches));
  for (int microbatch = 0; microbatch < settings_.microbatches; ++microbatch) {
    if (reads_tokens()) inputs_.emplace(microbatch, inputs_of(microbatch).to(device));
    if (makes_loss()) targets_.emplace(microbatch, targets_of(microbatch).to(device));
  }
}

// Of a microbatch, that an embedding or a head reads: a grid's ranks share them out.
IndexRange TorchStage::own_sequences(const Block& reader) const {
  const Division* const division = reader.division();
  return division == nullptr ? IndexRange{.begin = 0, .end = settings_.training.microbatch} : division->sequences();
}

namespace {

Training of_sequences(Training training, const IndexRange& own) {
  training.microbatch = own.end - own.begin;
  return training;
}

TokenRange from_sequence(TokenRange range, const IndexRange& own) {
  range.sequence += own.begin;
  return range;
}

}  // namespace

at::Tensor TorchStage::inputs_of(int microbatch) const {
  if (const auto found = inputs_.find(microbatch); found != inputs_.end()) return found->second;
  const IndexRange own = own_sequences(*blocks_.front());
  return batch_inputs(*corpus_, settings_.model, of_sequences(settings_.training, own),
                      from_sequence(tokens_of(microbatch), own), settings_.numerics.compute);
}

at::Tensor TorchStage::targets_of(int microbatch) const {
  if (const auto found = targets_.find(microbatch); found != targets_.end()) return found->second;
  const IndexRange own = own_sequences(*blocks_.back());
  return batch_targets(*corpus_, settings_.model, of_sequences(settings_.training, own),
                       from_sequence(tokens_of(microbatch), own));
}

void TorchStage::zero_gradients() {
  tied_summed_ = false;
  partial_summed_ = false;
  reported_.clear();
  for (const WeightPtr& weight : trained_) {
    (weight->own_gradient.defined() ? weight->own_gradient : weight->gradient).zero_();
  }
  if (tied_head_ && tied_head_->is_trained()) tied_head_->gradient.zero_();
}

void TorchStage::use_version_of(int microbatch) {
  if (settings_.update_every > 0) use_version(settings_.versions.at(static_cast<std::size_t>(microbatch)));
}

void TorchStage::use_version(std::int32_t version) {
  const auto found = versions_.find(version);
  if (found == versions_.end() || found->second.values.empty()) {
    throw RunError("stage " + std::to_string(settings_.stage),
                   "the weights of update " + std::to_string(version) + " are not there");
  }
  for (std::size_t index = 0; index < weights_.size(); ++index) {
    weights_[index]->value = found->second.values[index];
  }
  if (tied_embedding_ && tied_head_) share_table();
}

Slice TorchStage::slice_of(int microbatch) const {
  const int index = microbatch % settings_.slices;
  Slice slice{.index = index, .count = settings_.slices, .first_token = tokens_of(microbatch).first};
  for (int before = 0; before < index; ++before) {
    const plumb::Slice& earlier = slices_[static_cast<std::size_t>(before)];
    slice.ends.push_back(earlier.before + earlier.tokens);
  }
  return slice;
}

TokenRange TorchStage::tokens_of(int microbatch) const {
  const Training& training = settings_.training;
  const int of_batch = microbatch / settings_.slices * settings_.share.count + settings_.share.index;
  const plumb::Slice& slice = of_slice(slices_, microbatch);
  return {.sequence = step_ * training.global_batch + of_batch * training.microbatch,
          .first = slice.before,
          .count = slice.tokens};
}

// Of a microbatch's mean loss, that of the sequences whose loss this rank has.
double TorchStage::share_of_sequences() const {
  const IndexRange own = own_sequences(*blocks_.back());
  return static_cast<double>(own.end - own.begin) / static_cast<double>(settings_.training.microbatch);
}

// Of the mean loss of its tokens, in the mean over microbatches: 1 unless slices differ, exactly.
double TorchStage::loss_share(int microbatch) const {
  const plumb::Slice& slice = of_slice(slices_, microbatch);
  return static_cast<double>(slice.tokens * settings_.slices) / static_cast<double>(settings_.training.sequence);
}

std::vector<std::int64_t> TorchStage::boundary_shape(int microbatch) const {
  if (const Division* const division = blocks_.front()->division()) return division->hidden_states();
  return {settings_.training.microbatch, tokens_of(microbatch).count, settings_.model.hidden};
}

at::TensorOptions TorchStage::boundary_options() const {
  return at::TensorOptions().dtype(settings_.numerics.compute).device(settings_.numerics.device);
}

at::Tensor TorchStage::received(Payload payload, int microbatch, const std::string& what) const {
  const std::vector<std::int64_t> shape = boundary_shape(microbatch);
  const auto expected =
      static_cast<std::size_t>(shape[0] * shape[1] * shape[2]) * at::elementSize(settings_.numerics.compute);
  if (payload.size != expected) {
    throw RunError("stage " + std::to_string(settings_.stage), "expected " + std::to_string(expected) + " bytes of " +
                                                                   what + ", got " + std::to_string(payload.size));
  }
  void* const data = payload.data;
  at::Tensor tensor = at::from_blob(
      data, shape, [owner = std::move(payload.owner)](void*) {}, boundary_options());
  return is_aligned(data) ? tensor : tensor.clone();
}

// `first`: of F, not of R.
at::Tensor TorchStage::run_blocks(int microbatch, at::Tensor input, bool keep, bool first) {
  Pass pass{.microbatch = microbatch,
            .queue = {},
            .targets = {},
            .routing = routing_,
            .lists_kept = settings_.evicts || settings_.training.offload.activations,
            .slice = slice_of(microbatch)};
  if (makes_loss()) pass.targets = targets_of(microbatch);
  on_host_.begin();
  BlockGathers weights = gathers(Way::down, first);
  for (const auto& block : blocks_) {
    weights.enter();
    input = block->forward(std::move(input), pass, keep);
    weights.leave();
    if (keep && settings_.training.offload.activations) on_host_.put(*block, microbatch);
  }
  host_copies_ = weights.copied();
  host_copies_ += on_host_.copied();
  return input;
}

Payload TorchStage::forward(int microbatch, Payload input) {
  at::Tensor x = reads_tokens() ? inputs_of(microbatch) : received(std::move(input), microbatch, "activations");
  if (settings_.recomputed) {
    kept_inputs_[microbatch] = x;
  }
  use_version_of(microbatch);
  at::Tensor y = run_blocks(microbatch, std::move(x), !settings_.recomputed, true);
  if (!makes_loss()) {
    return to_payload(y.contiguous());
  }
  const auto index = static_cast<std::size_t>(microbatch);
  if (y.is_cpu()) {
    losses_.at(index) = y.item<double>();
  } else {
    made_losses_.at(index) = y;
  }
  return {};
}

void TorchStage::recompute(int microbatch) {
  auto node = kept_inputs_.extract(microbatch);
  if (node.empty()) {
    throw RunError("stage " + std::to_string(settings_.stage),
                   "R of microbatch " + std::to_string(microbatch) + " without F before it");
  }
  use_version_of(microbatch);
  (void)run_blocks(microbatch, std::move(node.mapped()), true, false);
}

Payload TorchStage::input_gradient(int microbatch, Payload output_gradient) {
  return go_back(microbatch, std::move(output_gradient), false);
}

Payload TorchStage::backward(int microbatch, Payload output_gradient) {
  return go_back(microbatch, std::move(output_gradient), true);
}

Payload TorchStage::go_back(int microbatch, Payload output_gradient, bool with_weights) {
  if (evicted_.contains(microbatch)) {
    throw RunError("stage " + std::to_string(settings_.stage),
                   "I or B of microbatch " + std::to_string(microbatch) + " between its EVICT and its LOAD");
  }
  const auto of_loss = at::TensorOptions().dtype(settings_.numerics.gradient).device(settings_.numerics.device);
  at::Tensor gradient = makes_loss() ? at::full({}, share_of_update(microbatch) * share_of_sequences(), of_loss)
                                     : received(std::move(output_gradient), microbatch, "output gradients");
  use_version_of(microbatch);
  on_host_.begin();
  BlockGathers weights = gathers(Way::up, false);
  BlockReductions sums = reductions();
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    weights.enter();
    on_host_.bring_back(**block, microbatch);
    gradient = (*block)->input_gradient(microbatch, std::move(gradient));
    weights.leave();  // W reads none
    if (with_weights) run_weight_gradient(**block, microbatch, sums);
  }
  host_copies_ = weights.copied();
  host_copies_ += on_host_.copied();
  sums.finish();
  if (with_weights) complete_ = nullptr;
  if (settings_.update_every > 0) {
    const std::int32_t version = settings_.versions[static_cast<std::size_t>(microbatch)];
    const auto used = versions_.find(version);
    if (--used->second.uses_left == 0 && version != newest_) versions_.erase(used);
  }
  if (reads_tokens()) return {};
  // Nothing before is trained (LoRA): the message that the schedule has is sent all the same.
  if (!gradient.defined()) gradient = at::zeros(boundary_shape(microbatch), boundary_options());
  return to_payload(std::move(gradient));
}

Parcel TorchStage::evict(int microbatch) {
  std::vector<at::Tensor> tensors;
  for (const auto& block : blocks_) {
    if (KeptTensors* const kept = block->kept(microbatch)) kept->take(tensors);
  }
  if (tensors.empty() || evicted_.contains(microbatch)) {
    throw RunError("stage " + std::to_string(settings_.stage),
                   "EVICT of microbatch " + std::to_string(microbatch) + ", which keeps nothing here");
  }
  Parcel parcel;
  evicted_.emplace(microbatch, EvictedTensors(std::move(tensors), parcel));
  return parcel;
}

void TorchStage::load(int microbatch, Parcel parcel) {
  const auto node = evicted_.extract(microbatch);
  if (node.empty()) {
    throw RunError("stage " + std::to_string(settings_.stage),
                   "LOAD of microbatch " + std::to_string(microbatch) + " without EVICT before it");
  }
  std::vector<at::Tensor> tensors = node.mapped().restored(std::move(parcel));
  auto next = tensors.begin();
  for (const auto& block : blocks_) {
    if (KeptTensors* const kept = block->kept(microbatch)) kept->put(next);
  }
}

// What the mean loss of a microbatch counts in the gradients of its update: that is the mean over the microbatches
// whose gradients one optimizer step applies, here and in the other shares of the batch.
double TorchStage::share_of_update(int microbatch) const {
  const int every = settings_.update_every;
  const int first = every == 0 ? 0 : microbatch / every * every;
  const int of_update = every == 0 ? settings_.microbatches : std::min(every, settings_.microbatches - first);
  return loss_share(microbatch) / (of_update * settings_.share.count);
}

void TorchStage::weight_gradient(int microbatch) {
  BlockReductions sums = reductions();
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) run_weight_gradient(**block, microbatch, sums);
  sums.finish();
  complete_ = nullptr;
}

void TorchStage::optimizer_step() {
  sum_tied_gradients();
  sum_partial_gradients();
  if (!optimizer_) {
    throw RunError("stage " + std::to_string(settings_.stage), "fp64 stages are references and have no optimizer");
  }
  if (settings_.sharding.weights) let_go_of_weights();
  if (settings_.update_every == 0) {
    optimizer_->step();
    host_copies_ = optimizer_->host_copies();
    return;
  }
  use_version(newest_);
  optimizer_->step(versions_.at(newest_).uses_left > 0);
  if (versions_.at(newest_).uses_left == 0) versions_.erase(newest_);
  ++newest_;
  Version& made = versions_[newest_];
  for (const WeightPtr& weight : weights_) made.values.push_back(weight->value);
  if (tied_embedding_ && tied_head_) share_table();
  const bool last = newest_ * settings_.update_every >= settings_.microbatches;
  if (!last) zero_gradients();
}

void TorchStage::end_step() {
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    if (!blocks_[index]->idle()) {
      throw RunError("stage " + std::to_string(settings_.stage),
                     "the step ended while block " + std::to_string(settings_.blocks.first + static_cast<int>(index)) +
                         " still waits for I or W of a microbatch");
    }
  }
  if (!kept_inputs_.empty()) {
    throw RunError(
        "stage " + std::to_string(settings_.stage),
        "the step ended while R of microbatch " + std::to_string(kept_inputs_.begin()->first) + " is still to come");
  }
  for (std::size_t microbatch = 0; microbatch < made_losses_.size(); ++microbatch) {
    if (made_losses_[microbatch].defined()) losses_[microbatch] = made_losses_[microbatch].item<double>();
  }
  made_losses_.clear();
}

double TorchStage::loss() const {
  double sum = 0;
  for (int microbatch = 0; microbatch < settings_.microbatches; ++microbatch) {
    sum += loss_share(microbatch) * losses_[static_cast<std::size_t>(microbatch)];
  }
  return sum / settings_.microbatches;
}

}  // namespace plumb::exec
