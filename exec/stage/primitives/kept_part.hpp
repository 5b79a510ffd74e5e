// A value that products read gathered, and of which they keep this rank's part alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>

namespace plumb::exec {

// I gathers it again, once for all products that read it (arXiv 2205.05198, section 4.2.2), and W has it from there.
// Reference-counted by LibTorch, because autograd nodes hold it.
class KeptPart final : public torch::CustomClassHolder {
 public:
  // `gather` holds the part.
  explicit KeptPart(std::function<at::Tensor()> gather) : gather_(std::move(gather)) {}

  [[nodiscard]] const at::Tensor& gathered_again() {
    if (!again_.defined()) again_ = gather_();
    return again_;
  }

 private:
  std::function<at::Tensor()> gather_;
  at::Tensor again_;
};
using KeptPartPtr = c10::intrusive_ptr<KeptPart>;

}  // namespace plumb::exec
