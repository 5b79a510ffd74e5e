// Rotary positions (RoFormer, arXiv 2104.09864, equation 34).
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

// x and y: tokens whose heads [heads, size] are contiguous, and which begin x_stride and y_stride elements apart. Of
// the first 2 · half elements of a head, element i turns with i + half or, interleaved, 2i with 2i + 1; the others
// stay. Token t turns by row t % time of the tables [time, half].
struct RotaryShape {
  std::int64_t tokens = 0;
  std::int64_t time = 0;
  std::int64_t heads = 0;
  std::int64_t size = 0;
  std::int64_t half = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  bool interleaved = false;
};

// A pair (a, b) becomes (a cos − b sin, b cos + a sin); backwards, which gives dx from dy, (a cos + b sin, b cos − a
// sin). y may be x.
template <class Element>
struct Rotary {
  const Element* x = nullptr;
  const Statistic<Element>* cosine = nullptr;
  const Statistic<Element>* sine = nullptr;
  Element* y = nullptr;
  bool backwards = false;
};

// On the GPU; throws std::invalid_argument on a bad shape and CudaError where CUDA fails.
void rotary(const RotaryShape& shape, Type type, const Rotary<void>& arguments, Stream stream);

void rotary_reference(const RotaryShape& shape, const Rotary<double>& arguments);

}  // namespace plumb::kernels
