// SwiGLU (arXiv 2002.05202, section 2, without the matrices): silu(gate) · up.
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

// Rows of gate, up and their gradients begin `stride` elements apart, so both may be halves of one array
// [rows, 2 · columns]; those of y and dy are contiguous.
struct SwigluShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

// y = silu(gate) · up, with silu(g) = g / (1 + exp(−g)).
template <class Element>
struct SwigluForward {
  const Element* gate = nullptr;
  const Element* up = nullptr;
  Element* y = nullptr;
};

// dgate = dy · up · s · (1 + gate · (1 − s)) with s = 1 / (1 + exp(−gate)); dup = dy · gate · s. May be in place.
template <class Element>
struct SwigluBackward {
  const Element* dy = nullptr;
  const Element* gate = nullptr;
  const Element* up = nullptr;
  Element* dgate = nullptr;
  Element* dup = nullptr;
};

// On the GPU; both throw std::invalid_argument on a bad shape and CudaError where CUDA fails.
void swiglu_forward(const SwigluShape& shape, Type type, const SwigluForward<void>& arguments, Stream stream);
void swiglu_backward(const SwigluShape& shape, Type type, const SwigluBackward<void>& arguments, Stream stream);

void swiglu_forward_reference(const SwigluShape& shape, const SwigluForward<double>& arguments);
void swiglu_backward_reference(const SwigluShape& shape, const SwigluBackward<double>& arguments);

}  // namespace plumb::kernels
