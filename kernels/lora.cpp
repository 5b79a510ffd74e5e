#include "kernels/lora.hpp"

#include <algorithm>

namespace plumb::kernels {

void lora_project_reference(const LoraShape& shape, const LoraProject<double>& a) {
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t r = 0; r < shape.rank; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        sum += a.x[t * shape.x_stride + c] * a.factor[r * shape.columns + c];
      }
      a.z[t * shape.z_stride + r] = a.scale * sum;
    }
  }
}

void lora_add_reference(const LoraShape& shape, const LoraAdd<double>& a) {
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t r = 0; r < shape.rank; ++r) {
      const double z = a.z[t * shape.z_stride + r];
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        a.x[t * shape.x_stride + c] += z * a.factor[r * shape.columns + c];
      }
    }
  }
}

void lora_gradient_reference(const LoraShape& shape, const LoraGradient<double>& a) {
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t r = 0; r < shape.rank; ++r) {
      const double z = a.z[t * shape.z_stride + r];
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        a.gradient[r * shape.columns + c] += z * a.x[t * shape.x_stride + c];
      }
    }
  }
}

void lora_backward_reference(const LoraShape& shape, const LoraBackward<double>& a) {
  std::fill(a.parts, a.parts + shape.rank * shape.columns, 0.0);
  lora_gradient_reference(shape, {.z = a.z, .x = a.x, .gradient = a.parts});
  lora_project_reference(shape, {.x = a.x, .factor = a.factor, .z = a.dz, .scale = a.scale});
}

}  // namespace plumb::kernels
