// The kernels that stages call with raw pointers, one table for each kind of device that has some.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/adamw.hpp"
#include "kernels/device/cuda_check.hpp"
#include "kernels/device/types.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/lora.hpp"
#include "kernels/moe.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"

namespace plumb::exec {

// Functions of kernels/, by their names there.
struct KernelTable {
  decltype(&kernels::rms_norm_forward) rms_norm_forward = nullptr;
  decltype(&kernels::rms_norm_part_count) rms_norm_part_count = nullptr;
  decltype(&kernels::rms_norm_input_gradient) rms_norm_input_gradient = nullptr;
  decltype(&kernels::rms_norm_weight_gradient) rms_norm_weight_gradient = nullptr;
  decltype(&kernels::swiglu_forward) swiglu_forward = nullptr;
  decltype(&kernels::swiglu_backward) swiglu_backward = nullptr;
  decltype(&kernels::rotary) rotary = nullptr;
  decltype(&kernels::moe_workspace) moe_workspace = nullptr;
  decltype(&kernels::moe_plan) moe_plan = nullptr;
  decltype(&kernels::moe_permute) moe_permute = nullptr;
  decltype(&kernels::moe_unpermute) moe_unpermute = nullptr;
  decltype(&kernels::moe_unpermute_backward) moe_unpermute_backward = nullptr;
  decltype(&kernels::lora_project) lora_project = nullptr;
  decltype(&kernels::lora_backward_workspace) lora_backward_workspace = nullptr;
  decltype(&kernels::lora_backward) lora_backward = nullptr;
  decltype(&kernels::lora_add_parts) lora_add_parts = nullptr;
  decltype(&kernels::lora_part_count) lora_part_count = nullptr;
  decltype(&kernels::lora_gradient) lora_gradient = nullptr;
  decltype(&kernels::gated_delta_fits) gated_delta_fits = nullptr;
  decltype(&kernels::gated_delta_forward) gated_delta_forward = nullptr;
  decltype(&kernels::gated_delta_workspace) gated_delta_workspace = nullptr;
  decltype(&kernels::gated_delta_backward) gated_delta_backward = nullptr;
  decltype(&kernels::adamw) adamw = nullptr;
  decltype(&kernels::exact_squares_workspace) exact_squares_workspace = nullptr;
  decltype(&kernels::exact_squares) exact_squares = nullptr;
  decltype(&kernels::compute_capability) compute_capability = nullptr;
};

// All of the library that whoever calls this is linked with: CUDA's in kernel_table.cpp, emulated ones in tests.
[[nodiscard]] inline KernelTable linked_kernels() {
  namespace k = kernels;
  return {
      .rms_norm_forward = &k::rms_norm_forward,
      .rms_norm_part_count = &k::rms_norm_part_count,
      .rms_norm_input_gradient = &k::rms_norm_input_gradient,
      .rms_norm_weight_gradient = &k::rms_norm_weight_gradient,
      .swiglu_forward = &k::swiglu_forward,
      .swiglu_backward = &k::swiglu_backward,
      .rotary = &k::rotary,
      .moe_workspace = &k::moe_workspace,
      .moe_plan = &k::moe_plan,
      .moe_permute = &k::moe_permute,
      .moe_unpermute = &k::moe_unpermute,
      .moe_unpermute_backward = &k::moe_unpermute_backward,
      .lora_project = &k::lora_project,
      .lora_backward_workspace = &k::lora_backward_workspace,
      .lora_backward = &k::lora_backward,
      .lora_add_parts = &k::lora_add_parts,
      .lora_part_count = &k::lora_part_count,
      .lora_gradient = &k::lora_gradient,
      .gated_delta_fits = &k::gated_delta_fits,
      .gated_delta_forward = &k::gated_delta_forward,
      .gated_delta_workspace = &k::gated_delta_workspace,
      .gated_delta_backward = &k::gated_delta_backward,
      .adamw = &k::adamw,
      .exact_squares_workspace = &k::exact_squares_workspace,
      .exact_squares = &k::exact_squares,
      .compute_capability = &k::compute_capability,
  };
}

// That of the kind of device that x is on; null where there is none. CUDA's is there where CUDA was built.
[[nodiscard]] const KernelTable* kernel_table(const at::Tensor& x);

// Puts another in its place, or none, and returns the one before: for tests, and between steps only.
const KernelTable* set_kernel_table(c10::DeviceType kind, const KernelTable* table);

// fp32, fp16 or bf16: what kernels take.
[[nodiscard]] bool is_kernel_type(at::ScalarType type);
// Precondition: is_kernel_type.
[[nodiscard]] kernels::Type kernel_type(at::ScalarType type);
[[nodiscard]] inline kernels::Type kernel_type(const at::Tensor& x) { return kernel_type(x.scalar_type()); }

// The thread's current stream of x's device, which LibTorch's own operations go to as well.
[[nodiscard]] kernels::Stream current_stream(const at::Tensor& x);

}  // namespace plumb::exec
