// Low-rank adapters (LoRA, arXiv 2106.09685, section 4.1): the passes beside the base matrix's product, which stays
// with cuBLAS.
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

// With the base product x·W of cuBLAS, A [rank, in] and B [rank, out], both contiguous, and s = alpha / rank:
//   F: z = s x·Aᵀ   (project x by A);      y = x·W + z·B     (add z by B)
//   I: dz = s dy·Bᵀ (project dy by B);     dx = dy·Wᵀ + dz·A (add dz by A)
//   W: dB += zᵀ·dy  (gradient of z and dy); dA += dzᵀ·x      (gradient of dz and x)
// dz and dB both read dy: `backward` makes both in one pass, in I, and leaves dB in parts that W adds up.
// Where the rows of x and dy leave room for rank more columns, z and dz can be projected into it (their stride is the
// rows') and the base product taken over in + rank columns, with B under W: then `add` falls away.
struct LoraShape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;   // of x and of the factor
  std::int64_t rank = 0;      // 1 to 64
  std::int64_t x_stride = 0;  // elements between rows of x
  std::int64_t z_stride = 0;  // and of z
};

// z[t, r] = scale · sum over c of x[t, c] · factor[r, c].
template <class Element>
struct LoraProject {
  const Element* x = nullptr;
  const Element* factor = nullptr;
  Element* z = nullptr;
  double scale = 1;
};

// x[t, c] += sum over r of z[t, r] · factor[r, c].
template <class Element>
struct LoraAdd {
  const Element* z = nullptr;
  const Element* factor = nullptr;
  Element* x = nullptr;
};

// gradient[r, c] += sum over t of z[t, r] · x[t, c], in fp32 by parts of the tokens, always in the same order; parts
// [lora_part_count, rank, columns].
template <class Element>
struct LoraGradient {
  const Element* z = nullptr;
  const Element* x = nullptr;
  Statistic<Element>* parts = nullptr;  // not used by the reference
  Statistic<Element>* gradient = nullptr;
};

// dz[t, r] = scale · sum over c of x[t, c] · factor[r, c], and the parts [lora_part_count, rank, columns] of the sum
// over t of z[t, r] · x[t, c], in one pass over x. The reference leaves one part.
template <class Element>
struct LoraBackward {
  const Element* x = nullptr;  // dy
  const Element* factor = nullptr;
  const Element* z = nullptr;
  Element* dz = nullptr;  // of z's stride
  Statistic<Element>* parts = nullptr;
  Statistic<Element>* workspace = nullptr;  // [lora_backward_workspace]; not used by the reference
  double scale = 1;
};

// On the GPU; all throw std::invalid_argument on a bad shape and CudaError where CUDA fails. bf16 and fp16 use the
// tensor cores where columns and strides are multiples of 8 and the arrays begin at multiples of 16 bytes.
void lora_project(const LoraShape& shape, Type type, const LoraProject<void>& arguments, Stream stream);
void lora_add(const LoraShape& shape, Type type, const LoraAdd<void>& arguments, Stream stream);
[[nodiscard]] std::int64_t lora_part_count(const LoraShape& shape);
void lora_gradient(const LoraShape& shape, Type type, const LoraGradient<void>& arguments, Stream stream);
[[nodiscard]] std::int64_t lora_backward_workspace(const LoraShape& shape);
void lora_backward(const LoraShape& shape, Type type, const LoraBackward<void>& arguments, Stream stream);
// gradient [size] += sum of the parts [count, size], always in the same order.
void lora_add_parts(std::int64_t size, std::int64_t count, const float* parts, float* gradient, Stream stream);

void lora_project_reference(const LoraShape& shape, const LoraProject<double>& arguments);
void lora_add_reference(const LoraShape& shape, const LoraAdd<double>& arguments);
void lora_gradient_reference(const LoraShape& shape, const LoraGradient<double>& arguments);
void lora_backward_reference(const LoraShape& shape, const LoraBackward<double>& arguments);

}  // namespace plumb::kernels
