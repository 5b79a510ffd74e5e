// What W reads gathered, and of which this rank's part alone is kept until then.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>

namespace plumb::exec {

// Gathered once for all products that read it (arXiv 2205.05198, section 4.2.2), when the first of them asks; what was
// gathered goes with the last that holds this. Reference-counted by LibTorch, because autograd nodes hold it.
class KeptPart final : public torch::CustomClassHolder {
 public:
  // `gather` holds the part.
  explicit KeptPart(std::function<at::Tensor()> gather) : gather_(std::move(gather)) {}

  [[nodiscard]] const at::Tensor& gathered() {
    if (!gathered_.defined()) gathered_ = gather_();
    return gathered_;
  }

 private:
  std::function<at::Tensor()> gather_;
  at::Tensor gathered_;
};
using KeptPartPtr = c10::intrusive_ptr<KeptPart>;

}  // namespace plumb::exec
