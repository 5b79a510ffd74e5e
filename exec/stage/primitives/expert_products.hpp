// Products of rows sorted by expert with their experts' matrices.
//
// By groups, all experts' in one launch whose sizes stay on the device, by at::_grouped_mm where that neither waits for
// the device nor goes over the experts itself. Else one product after the other, for which the host needs each expert's
// number of rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "exec/stage/primitives/expert_rows.hpp"

namespace plumb::exec {

// Whether products of x are by groups, if widths are multiples of 8 (16 bytes, as TMA wants them) and experts fewer
// than 1024: of bf16 on devices of compute capability 9, in a build with LibTorch 2.11 or later and with the CUDA
// kernels, which tell the capability. Not on 10, where the gradient of an expert without rows came out as garbage
// (github.com/pytorch/pytorch/issues/172439).
[[nodiscard]] bool computes_by_groups(const at::Tensor& x);

// y[r] = x[r] · matrices[e] for each row r of expert e: x [rows, in], matrices [experts, in, out].
[[nodiscard]] at::Tensor expert_product(const at::Tensor& x, const at::Tensor& matrices, const ExpertRows& rows);

// y[r] += x[r] · matrices[e]. By groups, the products are another array as large as y, rounded to its type, and y is
// read and written once more: at::_grouped_mm does not add to what is there.
void add_expert_product(const at::Tensor& y, const at::Tensor& x, const at::Tensor& matrices, const ExpertRows& rows);

// gradients[e] += dyᵀ · x over e's rows: gradients [experts, out, in], which may be wider than dy [rows, out] and x
// [rows, in]. By groups, what is added is rounded to their type first, as in accumulate_product, and is all experts' at
// once.
void accumulate_expert_product(const at::Tensor& gradients, const at::Tensor& dy, const at::Tensor& x,
                               const ExpertRows& rows);

}  // namespace plumb::exec
