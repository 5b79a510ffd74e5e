// AdamW (arXiv 1711.05101, algorithm 2, with the defaults of torch.optim.AdamW) over many tensors in few launches.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

struct AdamWSettings {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double decay = 1e-2;
  double gradient_scale = 1;  // multiplies each gradient first: clipping, loss scaling
  std::int64_t step = 1;      // counts from 1
};

// Of one tensor: fp32 weight and moments, its gradient, and the copy in the type that is computed in, or none.
struct AdamWTensor {
  std::int64_t size = 0;
  const float* gradient = nullptr;
  float* weight = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  void* copy = nullptr;  // of the given type; none: not written
};

// On the GPU; throws std::invalid_argument on a bad size or step and CudaError where CUDA fails. The bits are those of
// adamw_reference. The tensors' list is read before the call returns.
void adamw(const AdamWSettings& settings, Type copy_type, std::span<const AdamWTensor> tensors, Stream stream);

// In fp32, one rounding for each operation: m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²;
// w ← (1 − rate·decay) w − rate / (1 − β1^step) · m / (√v / √(1 − β2^step) + epsilon). Copies hold the type's bits.
void adamw_reference(const AdamWSettings& settings, Type copy_type, std::span<const AdamWTensor> tensors);

// The settings as both use them.
struct AdamWNumbers {
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;
  float rest2 = 0;
  float keep = 0;
  float rate = 0;
  float root = 0;
  float epsilon = 0;
  float gradient_scale = 0;
};
[[nodiscard]] AdamWNumbers adamw_numbers(const AdamWSettings& settings);

}  // namespace plumb::kernels
