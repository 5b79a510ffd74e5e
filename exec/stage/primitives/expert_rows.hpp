// Rows sorted by expert: which are whose.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace plumb::exec {

// Reference-counted by LibTorch, because autograd nodes hold it.
class ExpertRows final : public torch::CustomClassHolder {
 public:
  // `ends`: int32 [experts], on the rows' device: the row behind the last of each expert.
  explicit ExpertRows(at::Tensor ends) : ends_(std::move(ends)) {}

  [[nodiscard]] const at::Tensor& ends() const { return ends_; }
  [[nodiscard]] std::int64_t experts() const { return ends_.size(0); }

  // How many rows each expert has. The first call waits for the device, the one place between a step's beginning and
  // end where the host does: products by groups (exec/stage/primitives/expert_products.hpp) do without.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const;
  [[nodiscard]] bool is_counted() const { return !counts_.empty(); }

 private:
  at::Tensor ends_;
  mutable std::vector<std::int64_t> counts_;
};

using ExpertRowsPtr = c10::intrusive_ptr<ExpertRows>;

}  // namespace plumb::exec
