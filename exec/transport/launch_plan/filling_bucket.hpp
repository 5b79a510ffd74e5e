// Gradients in the order in which they are complete, until there are enough of them to be summed as one.
#pragma once

#include <utility>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

// As in PyTorch's DDP (torch/csrc/distributed/c10d/reducer.hpp in github.com/pytorch/pytorch) a bucket has whole
// gradients.
template <class Gradient>
class FillingBucket {
 public:
  // Full with so many bytes.
  explicit FillingBucket(Bytes size) : size_(size) {}

  // The bucket that is full with this one; empty: none is.
  [[nodiscard]] std::vector<Gradient> add(Gradient gradient, Bytes bytes) {
    gradients_.push_back(std::move(gradient));
    held_ += bytes;
    return held_ >= size_ ? take() : std::vector<Gradient>();
  }

  // What is left.
  [[nodiscard]] std::vector<Gradient> take() {
    held_ = {};
    return std::exchange(gradients_, {});
  }

 private:
  Bytes size_;
  std::vector<Gradient> gradients_;
  Bytes held_;
};

}  // namespace plumb::exec
