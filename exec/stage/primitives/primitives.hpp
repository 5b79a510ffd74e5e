// What the stages' autograd functions compute with: a table of functions in two makes, LibTorch's operations and ours.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exec/stage/primitives/delta_rule.hpp"
#include "exec/stage/primitives/expert_rows.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/optimizer.hpp"

namespace plumb::exec {

// y = h / sqrt(mean(h²) + epsilon) · weight over the last dimension, h = x + residual; scale is what h is multiplied
// by.
struct NormForward {
  at::Tensor h;
  at::Tensor y;
  at::Tensor scale;
};
struct NormBackward {
  at::Tensor dx;
  at::Tensor weight_parts;  // [parts, columns] or [columns]; undefined if not asked for
};

// The choices of tokens, sorted by expert, as [tokens, top_k] of `chosen` in their order.
struct Dispatch {
  std::int64_t tokens = 0;
  at::Tensor choice;     // by row of the experts' input: the number of its choice; of LibTorch's make
  at::Tensor token;      // and its token
  at::Tensor row_of;     // by choice: its row; of ours
  ExpertRowsPtr rows{};  // whose the rows of the experts' input are
};

// A frozen matrix W [out, in] with its bias, if any, and an adapter A [rank, in], B [out, rank].
struct LoraMatrices {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
  at::Tensor a;
  at::Tensor b;
  double scale = 1;
};
struct LoraForward {
  at::Tensor y;
  at::Tensor narrow;  // scale · x · Aᵀ
};
struct LoraBackward {
  at::Tensor dx;                                      // undefined if not asked for
  at::Tensor dnarrow;                                 // scale · dy · B
  std::function<void(const at::Tensor&)> add_to_b{};  // W: adds B's gradient, from what it keeps until then
};

struct AdamWState {
  at::Tensor master;
  at::Tensor gradient;
  at::Tensor first_moment;
  at::Tensor second_moment;
  at::Tensor copy;  // undefined: none
};

// All without history, and none changes an argument, unless said.
struct Primitives {
  // Of an undefined residual h is x.
  NormForward (*rms_norm)(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double epsilon);
  // dh, which comes to h from beside the norm, is added to dx; undefined: none.
  NormBackward (*rms_norm_backward)(const NormForward& made, const at::Tensor& weight, const at::Tensor& dy,
                                    const at::Tensor& dh, bool for_weight);
  // gradient += sum of the parts.
  void (*add_parts)(const at::Tensor& gradient, const at::Tensor& parts);

  at::Tensor (*swiglu)(const at::Tensor& gate, const at::Tensor& up);
  std::pair<at::Tensor, at::Tensor> (*swiglu_backward)(const at::Tensor& dy, const at::Tensor& gate,
                                                       const at::Tensor& up);
  at::Tensor (*rotate)(const at::Tensor& x, const RotaryTables& tables, bool backwards);

  Dispatch (*dispatch)(const at::Tensor& chosen, std::int64_t experts);
  at::Tensor (*permute)(const at::Tensor& x, const Dispatch& plan);
  at::Tensor (*permute_backward)(const at::Tensor& drows, const Dispatch& plan);
  // share [tokens, top_k] may be wider than the rows.
  at::Tensor (*unpermute)(const at::Tensor& rows, const at::Tensor& share, const Dispatch& plan);
  std::pair<at::Tensor, at::Tensor> (*unpermute_backward)(const at::Tensor& dy, const at::Tensor& rows,
                                                          const at::Tensor& share, const Dispatch& plan);

  // Differentiable, unlike all else here; as delta_rule.
  at::Tensor (*delta_rule)(const DeltaInput& input, const DeltaChoice& choice, at::Tensor* state);

  LoraForward (*lora)(const at::Tensor& x, const LoraMatrices& matrices);
  LoraBackward (*lora_backward)(const at::Tensor& dy, const at::Tensor& narrow, const LoraMatrices& matrices,
                                bool for_input);
  // gradient [rank, in] += dnarrowᵀ · x.
  void (*lora_add_to_a)(const at::Tensor& gradient, const at::Tensor& dnarrow, const at::Tensor& x);

  // Changes master, moments and copy.
  void (*adamw)(const AdamW& settings, std::int64_t step, std::span<const AdamWState> states);
  // Of all values of fp32 tensors of one device, contiguous each: there, int64 with the bits of
  // kernels::ExactSquares::Numbers.
  at::Tensor (*exact_squares)(std::span<const at::Tensor> tensors);
};

// The one place that decides: ours where x's device has a table of kernels (exec/stage/primitives/kernel_table.hpp) and
// its type is one that they take; else LibTorch's.
[[nodiscard]] const Primitives& primitives_for(const at::Tensor& x);

[[nodiscard]] const Primitives& aten_primitives();
[[nodiscard]] const Primitives& kernel_primitives();

}  // namespace plumb::exec
