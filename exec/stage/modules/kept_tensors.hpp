// The tensors that autograd keeps for one pass, so that they can leave the rank and come back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/transport/transport.hpp"

namespace plumb::exec {

// LibTorch's own allocations begin at multiples of this; results of matrix products may depend on it.
[[nodiscard]] inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 64 == 0; }

// Of one autograd graph. It owns nothing: what the graph lets go is gone from here, too.
class KeptTensors {
 public:
  // While it lives, whatever autograd saves on this thread is listed.
  class Listing {
   public:
    explicit Listing(KeptTensors& list);
    Listing(const Listing&) = delete;
    Listing& operator=(const Listing&) = delete;
    ~Listing();

   private:
    KeptTensors* outer_;
  };

  // A leaf that the graph holds itself; here until `take` and again after `put`.
  void add_leaf(at::Tensor leaf) { leaves_.push_back(std::move(leaf)); }
  void add(const std::shared_ptr<at::Tensor>& saved) { saved_.push_back(saved); }

  // Moves all of them to the end of `tensors`; the graph is of no use until `put` gives them back, from `next` on.
  void take(std::vector<at::Tensor>& tensors);
  void put(std::vector<at::Tensor>::iterator& next);

 private:
  std::vector<std::weak_ptr<at::Tensor>> saved_;
  std::vector<at::Tensor> leaves_;
};

// Tensors without their bytes, which travel as they lie: each storage once, without a copy. A storage that somebody
// else uses as well, such as a weight, stays where it is.
class EvictedTensors {
 public:
  // Gives the tensors up; what leaves is put into `parts`.
  EvictedTensors(std::vector<at::Tensor> tensors, Parcel& parts);

  // The tensors again over the bytes that came back. Throws RunError for others than left.
  [[nodiscard]] std::vector<at::Tensor> restored(Parcel parts) const;

 private:
  struct View {
    std::size_t storage = 0;
    at::ScalarType type = at::kFloat;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
  };
  struct Left {
    bool here = false;
    std::size_t bytes = 0;
    c10::Device device = at::kCPU;
    c10::Storage storage;  // if it is still here
  };

  std::vector<View> views_;
  std::vector<Left> storages_;
};

}  // namespace plumb::exec
