#include "kernels/adamw.hpp"

#include <cmath>

#include "kernels/device/numbers.hpp"

namespace plumb::kernels {
namespace {

void write_copy(Type type, void* copy, std::int64_t at, float value) {
  switch (type) {
    case Type::fp32:
      static_cast<float*>(copy)[at] = value;
      return;
    case Type::fp16:
      static_cast<std::uint16_t*>(copy)[at] = fp16_bits(value);
      return;
    case Type::bf16:
      static_cast<std::uint16_t*>(copy)[at] = bf16_bits(value);
      return;
  }
}

}  // namespace

AdamWNumbers adamw_numbers(const AdamWSettings& settings) {
  const auto count = static_cast<double>(settings.step);
  return {.beta1 = static_cast<float>(settings.beta1),
          .beta2 = static_cast<float>(settings.beta2),
          .rest1 = static_cast<float>(1 - settings.beta1),
          .rest2 = static_cast<float>(1 - settings.beta2),
          .keep = static_cast<float>(1 - settings.rate * settings.decay),
          .rate = static_cast<float>(settings.rate / (1 - std::pow(settings.beta1, count))),
          .root = static_cast<float>(std::sqrt(1 - std::pow(settings.beta2, count))),
          .epsilon = static_cast<float>(settings.epsilon),
          .gradient_scale = static_cast<float>(settings.gradient_scale)};
}

void adamw_reference(const AdamWSettings& settings, Type copy_type, std::span<const AdamWTensor> tensors) {
  const AdamWNumbers n = adamw_numbers(settings);
  for (const AdamWTensor& tensor : tensors) {
    for (std::int64_t i = 0; i < tensor.size; ++i) {
      const float g = tensor.gradient[i] * n.gradient_scale;
      float& m = tensor.first_moment[i];
      float& v = tensor.second_moment[i];
      float& w = tensor.weight[i];
      m = n.beta1 * m + n.rest1 * g;
      v = n.beta2 * v + n.rest2 * (g * g);
      w = n.keep * w - n.rate * (m / (std::sqrt(v) / n.root + n.epsilon));
      if (tensor.copy != nullptr) write_copy(copy_type, tensor.copy, i, w);
    }
  }
}

}  // namespace plumb::kernels
