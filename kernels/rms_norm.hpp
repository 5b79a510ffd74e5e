// RMSNorm (arXiv 1910.07467, equation 4) with the residual sum before it.
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

struct RmsNormShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double epsilon = 1e-6;
};

// h = x + residual (x alone where there is none); y = h / sqrt(mean(h²) + epsilon) · weight. All contiguous; x,
// residual, h, y [rows, columns], weight [columns], inverse_rms [rows].
template <class Element>
struct RmsNormForward {
  const Element* x = nullptr;
  const Element* residual = nullptr;  // or none
  const Element* weight = nullptr;
  Element* h = nullptr;  // needed with a residual; may be x or the residual itself
  Element* y = nullptr;
  Statistic<Element>* inverse_rms = nullptr;
};

// From dy: dx = inverse_rms · (dy·weight − h · inverse_rms² · mean(dy·weight·h)) + dh, which is the residual's gradient
// too; dh [rows, columns] is what comes to h from beside the norm, or none. The weight's gradient is left in parts,
// each the sum over some rows of dy · h · inverse_rms: parts [count, columns].
template <class Element>
struct RmsNormInputGradient {
  const Element* dy = nullptr;
  const Element* h = nullptr;
  const Element* weight = nullptr;
  const Statistic<Element>* inverse_rms = nullptr;
  const Element* dh = nullptr;  // or none
  Element* dx = nullptr;        // may be dh
  Statistic<Element>* parts = nullptr;
};

// On the GPU; all throw std::invalid_argument on a bad shape and CudaError where CUDA fails.
void rms_norm_forward(const RmsNormShape& shape, Type type, const RmsNormForward<void>& arguments, Stream stream);
// How many parts the input gradient leaves on this device.
[[nodiscard]] std::int64_t rms_norm_part_count(const RmsNormShape& shape);
void rms_norm_input_gradient(const RmsNormShape& shape, Type type, const RmsNormInputGradient<void>& arguments,
                             Stream stream);
// Adds the parts [count, columns] to the fp32 gradient [columns], always in the same order.
void rms_norm_weight_gradient(std::int64_t columns, std::int64_t count, const float* parts, float* gradient,
                              Stream stream);

// The same on the CPU; the reference leaves one part.
void rms_norm_forward_reference(const RmsNormShape& shape, const RmsNormForward<double>& arguments);
void rms_norm_input_gradient_reference(const RmsNormShape& shape, const RmsNormInputGradient<double>& arguments);

}  // namespace plumb::kernels
