// SGD and AdamW on plain fp32 arrays: one pass, one element after the other, the same bits on every machine.
#pragma once

#include <cstdint>
#include <span>

namespace plumb::exec {

// What a gradient of this norm is multiplied by: limit / (norm + 1e-6), at most 1, as clip_grad_norm_ of PyTorch has
// it; NaN of a norm that is no number.
[[nodiscard]] double clipping_scale(double norm, double limit);

// weight ← weight − rate · gradient.
void sgd_step(std::span<float> weight, std::span<const float> gradient, double rate);

// arXiv 1711.05101, algorithm 2, with the defaults of torch.optim.AdamW.
struct AdamW {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double decay = 1e-2;
};

// `step` counts from 1.
void adamw_step(const AdamW& settings, std::int64_t step, std::span<float> weight, std::span<const float> gradient,
                std::span<float> first_moment, std::span<float> second_moment);

}  // namespace plumb::exec
