// The program of one block and one microbatch on one rank, from its operations and their placement.
#pragma once

#include <string>
#include <vector>

#include "common/cost/software.hpp"
#include "common/model/model.hpp"
#include "common/placement/placed_block.hpp"
#include "common/program/step.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {

struct KernelContext {
  std::int64_t sequence = 0;  // the whole one, also of a slice
  std::int64_t microbatch = 1;
  ElementType precision = ElementType::bf16;
  const Software& software;
  Slice slice = {};                // of each sequence
  bool framework_on_host = false;  // as an operation's context
  bool asynchronous = false;       // the layout's (TensorLayout)
};

// Of a sequence, or of the slice.
[[nodiscard]] std::int64_t tokens_of(const KernelContext& context);

// What `operations` of a model needs to describe the same kernels: those of a slice, over its own tokens, attention
// over all keys up to its end.
[[nodiscard]] OperationContext operation_context(const KernelContext& context);

// One block's operations as a layout divides them, with every collective of the placement. With `tensor_overlap` the
// reduction of an input's gradient runs beside the weight gradients of the matmuls that made it, and what W gathers
// again beside their input gradients (arXiv 2205.05198, section 4.2.2): in a full backward; where I and W are apart,
// both wait, as all moves of a grid do (Megatron-LM with zero bubble:
// github.com/sail-sg/zero-bubble-pipeline-parallelism, commit 39f2c186, megatron/core/tensor_parallel/layers.py,
// `async_op=wgrad_compute`). Where the layout is asynchronous, each gather and scatter of tokens goes in pieces beside
// the products of its own phase instead (common/program/decomposed.hpp). Of frozen operations what is trained counts.
[[nodiscard]] BlockProgram block_program(const std::vector<Operation>& operations, const KernelContext& context,
                                         const PlacedBlock& placed);

}  // namespace plumb
