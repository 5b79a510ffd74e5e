#include "exec/stage/modules/kept_tensors.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

thread_local KeptTensors* listing = nullptr;

// What a graph has saved, held where others can reach it.
class ReachableSaved final : public torch::autograd::SavedVariableHooks {
 public:
  explicit ReachableSaved(KeptTensors& list) { list.add(saved_); }

  // Without its history: autograd keeps that itself.
  void call_pack_hook(const at::Tensor& tensor) override { *saved_ = tensor.tensor_data(); }
  at::Tensor call_unpack_hook() override { return *saved_; }

 private:
  std::shared_ptr<at::Tensor> saved_ = std::make_shared<at::Tensor>();
};

// LibTorch asks its engine for the hooks of what it saves. Python's engine gives those of Python, the plain one none.
class ListingEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (listing == nullptr) return nullptr;
    return std::make_unique<ReachableSaved>(*listing);
  }

  // Never destroyed, as LibTorch's own: threads may still be in it.
  static torch::autograd::Engine& instance() {
    static ListingEngine* const engine = new ListingEngine;
    return *engine;
  }
};

}  // namespace

KeptTensors::Listing::Listing(KeptTensors& list) : outer_(std::exchange(listing, &list)) {
  static std::once_flag installed;
  std::call_once(installed, [] { torch::autograd::set_default_engine_stub(&ListingEngine::instance); });
}

KeptTensors::Listing::~Listing() { listing = outer_; }

void KeptTensors::take(std::vector<at::Tensor>& tensors) {
  std::erase_if(saved_, [](const auto& saved) { return saved.expired(); });
  for (const auto& saved : saved_) tensors.push_back(std::exchange(*saved.lock(), at::Tensor()));
  for (const at::Tensor& leaf : leaves_) {
    tensors.push_back(leaf.tensor_data());
    leaf.set_data(at::empty({0}, leaf.options()));
  }
}

void KeptTensors::put(std::vector<at::Tensor>::iterator& next) {
  for (const auto& saved : saved_) *saved.lock() = std::move(*next++);
  for (const at::Tensor& leaf : leaves_) leaf.set_data(*next++);
}

EvictedTensors::EvictedTensors(std::vector<at::Tensor> tensors, Parcel& parts) {
  std::vector<c10::Storage> storages;
  for (const at::Tensor& tensor : tensors) {
    const auto same = [&](const c10::Storage& other) { return other.is_alias_of(tensor.storage()); };
    const auto found = std::find_if(storages.begin(), storages.end(), same);
    views_.push_back({.storage = static_cast<std::size_t>(found - storages.begin()),
                      .type = tensor.scalar_type(),
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec(),
                      .offset = tensor.storage_offset()});
    if (found == storages.end()) storages.push_back(tensor.storage());
  }
  tensors.clear();
  for (c10::Storage& storage : storages) {
    const std::size_t bytes = storage.nbytes();
    const bool stays = bytes == 0 || storage.use_count() > 1;
    storages_.push_back(
        {.here = stays, .bytes = bytes, .device = storage.device(), .storage = stays ? storage : c10::Storage()});
    if (stays) continue;
    auto* const data = static_cast<std::byte*>(storage.mutable_data());
    parts.push_back({.owner = std::make_shared<c10::Storage>(std::move(storage)), .data = data, .size = bytes});
  }
}

std::vector<at::Tensor> EvictedTensors::restored(Parcel parts) const {
  std::vector<c10::Storage> storages;
  auto part = parts.begin();
  for (const Left& left : storages_) {
    if (left.here) {
      storages.push_back(left.storage);
      continue;
    }
    if (part == parts.end() || part->size != left.bytes) {
      throw RunError("", "other activations came back than were evicted: expected a part of " +
                             std::to_string(left.bytes) + " bytes, got " +
                             (part == parts.end() ? "none" : std::to_string(part->size)));
    }
    const auto bytes = static_cast<std::int64_t>(part->size);
    void* const data = part->data;
    const at::Tensor tensor = at::from_blob(
        data, {bytes}, [owner = std::move(part->owner)](void*) {},
        at::TensorOptions().dtype(at::kByte).device(left.device));
    storages.push_back((is_aligned(data) ? tensor : tensor.clone()).storage());  // of a device they are aligned
    ++part;
  }
  if (part != parts.end()) throw RunError("", "more activations came back than were evicted");
  std::vector<at::Tensor> tensors;
  for (const View& view : views_) {
    const c10::Storage& storage = storages[view.storage];
    tensors.push_back(at::empty({0}, at::TensorOptions().dtype(view.type).device(storage.device()))
                          .set_(storage, view.offset, view.sizes, view.strides));
  }
  return tensors;
}

}  // namespace plumb::exec
