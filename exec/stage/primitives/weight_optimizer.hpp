// The optimizer's states for a list of weights: fp32 moments, and a master copy of weights that are narrower.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/scenario/scenario.hpp"
#include "exec/stage/primitives/optimizer.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// As adamw_step in exec/stage/primitives/optimizer.hpp, in LibTorch's operations: of fp32 tensors that are not on the
// host. They round in their own order.
void adamw_step(const AdamW& settings, std::int64_t step, const at::Tensor& weight, const at::Tensor& gradient,
                const at::Tensor& first_moment, const at::Tensor& second_moment);

class WeightOptimizer {
 public:
  WeightOptimizer(std::vector<WeightPtr> weights, const Training& training);

  // One step of SGD or AdamW with the main gradients as they stand. With `keep_old` the weights get new tensors and
  // whoever holds the old ones keeps them.
  void step(bool keep_old = false);

 private:
  struct State {
    WeightPtr weight;
    at::Tensor master;  // the weight itself if that is fp32
    at::Tensor first_moment;
    at::Tensor second_moment;
  };

  void subtract(const AdamWState& state) const;  // SGD

  Training training_;
  std::vector<State> states_;
  std::int64_t steps_ = 0;
};

}  // namespace plumb::exec
