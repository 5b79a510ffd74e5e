// The gated delta rule (Gated DeltaNet, arXiv 2412.06464, equation 10): the recurrence on the CPU, and its forward pass
// on the GPU. The kernel has no backward pass yet.
#pragma once

#include <cstdint>

#include "kernels/types.hpp"

namespace plumb::kernels {

struct GatedDeltaShape {
  std::int64_t sequences = 0;  // batch · heads: independent of each other
  std::int64_t time = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

// Contiguous; query and key [sequences, time, key_dim], value [sequences, time, value_dim], beta and log_decay
// [sequences, time]. No log_decay is above zero.
struct GatedDeltaInput {
  const double* query = nullptr;
  const double* key = nullptr;
  const double* value = nullptr;
  const double* beta = nullptr;
  const double* log_decay = nullptr;
};

// Of the kernel: elements of a Type, fp32 beta and log_decay, and the fp32 states [sequences, key_dim, value_dim].
struct GatedDeltaForward {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  const float* beta = nullptr;
  const float* log_decay = nullptr;
  const float* first_state = nullptr;  // none: zero
  void* output = nullptr;
  float* last_state = nullptr;  // none: not written
};

// Step by step, from a zero state S [key_dim, value_dim]: S ← exp(log_decay)·S; S ← S + key·(beta·(value − Sᵀkey))ᵀ;
// output [sequences, time, value_dim] = Sᵀquery.
void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output);

// The same from first_state on, on the GPU. bf16 and fp16 with keys of 64 or 128 and values of a multiple of 32 go in
// chunks of 64 steps through the tensor cores, in the WY form of arXiv 2406.06484, section 3, with fp32 sums and
// operands of the type; all else goes step by step in fp32. Throws std::invalid_argument on a bad shape (keys above
// 256) and CudaError where CUDA fails.
void gated_delta_forward(const GatedDeltaShape& shape, Type type, const GatedDeltaForward& arguments, Stream stream);

}  // namespace plumb::kernels
