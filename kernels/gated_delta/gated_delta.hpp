// The gated delta rule (Gated DeltaNet, arXiv 2412.06464, equation 10): the recurrence and its derivative on the CPU,
// and both passes on the GPU.
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

struct GatedDeltaShape {
  std::int64_t sequences = 0;  // batch · heads: independent of each other
  std::int64_t time = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

// Contiguous; query and key [sequences, time, key_dim], value [sequences, time, value_dim], beta and log_decay
// [sequences, time], states [sequences, key_dim, value_dim]. No log_decay is above zero.
struct GatedDeltaInput {
  const double* query = nullptr;
  const double* key = nullptr;
  const double* value = nullptr;
  const double* beta = nullptr;
  const double* log_decay = nullptr;
  const double* first_state = nullptr;  // none: zero
};

// Of the same shapes: what comes from the output and the last state (none: zero), and where the gradients go (none of
// the first state: not written).
struct GatedDeltaGradients {
  const double* output = nullptr;
  const double* last_state = nullptr;
  double* query = nullptr;
  double* key = nullptr;
  double* value = nullptr;
  double* beta = nullptr;
  double* log_decay = nullptr;
  double* first_state = nullptr;
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
  // By chunks only, or none. Of each chunk its first state, [sequences, chunks, value_dim, key_dim], and what each step
  // writes, [sequences, time, value_dim]; then the output may be none.
  void* states = nullptr;
  void* writes = nullptr;
};

// The arrays of the forward pass again; doutput, dquery, dkey and dvalue have elements of the type, all else is fp32.
struct GatedDeltaBackward {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  const float* beta = nullptr;
  const float* log_decay = nullptr;
  const float* first_state = nullptr;  // none: zero
  const void* doutput = nullptr;
  const float* dlast_state = nullptr;  // none: zero
  void* dquery = nullptr;
  void* dkey = nullptr;
  void* dvalue = nullptr;
  float* dbeta = nullptr;
  float* dlog_decay = nullptr;
  float* dfirst_state = nullptr;  // none: not written
  void* workspace = nullptr;      // gated_delta_workspace bytes
};

// Step by step, from the state S [key_dim, value_dim] on: S ← exp(log_decay)·S; S ← S + key·(beta·(value − Sᵀkey))ᵀ;
// output [sequences, time, value_dim] = Sᵀquery. The backward pass keeps all states.
void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output);
void gated_delta_backward_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input,
                                    const GatedDeltaGradients& gradients);

// Whether the kernels go in chunks of 64 steps through the tensor cores, in the WY form of arXiv 2406.06484, section 3,
// with fp32 sums and operands of the type, those of fp32 split into two of TF32: keys of 64 or 128 and values of a
// multiple of 32.
[[nodiscard]] constexpr bool gated_delta_goes_by_chunks(const GatedDeltaShape& shape) {
  return (shape.key_dim == 64 || shape.key_dim == 128) && shape.value_dim % 32 == 0;
}

// Whether it goes by chunks and a block of the current device can have the shared memory that both passes take: 93 KiB
// in 16-bit types, in fp32 140 KiB for keys of 64 and 180 for those of 128. sm_90 has 227 KiB, sm_80 163, and sm_86,
// sm_89 and sm_120 have 99 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). Where it
// does not fit, callers have another way to take: gated_delta_forward may throw CudaError, the backward pass does.
[[nodiscard]] bool gated_delta_fits(const GatedDeltaShape& shape, Type type);

// On the GPU; throw std::invalid_argument on a bad shape (keys above 256) and CudaError where CUDA fails. What does not
// go by chunks, or begins at no multiple of 8 elements, goes forward step by step in fp32; the backward pass refuses
// it.
void gated_delta_forward(const GatedDeltaShape& shape, Type type, const GatedDeltaForward& arguments, Stream stream);
[[nodiscard]] std::int64_t gated_delta_workspace(const GatedDeltaShape& shape, Type type);  // bytes
void gated_delta_backward(const GatedDeltaShape& shape, Type type, const GatedDeltaBackward& arguments, Stream stream);

}  // namespace plumb::kernels
