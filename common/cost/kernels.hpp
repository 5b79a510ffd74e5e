// The kernels that one rank runs for one block and one microbatch: what a block's time is the sum of.
#pragma once

#include <string>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/cost/device_time.hpp"
#include "common/cost/software.hpp"
#include "common/model/model.hpp"
#include "common/placement/placed_block.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {

enum class KernelKind : std::uint8_t { matmul, core, stream, collective };
struct Kernel {
  std::string name;
  Phase phase = Phase::forward;
  KernelKind kind = KernelKind::stream;
  MatmulSizes matmul = {};  // of a matmul
  Flops flops = {};         // of a core
  double bytes = 0;         // streamed, or of a collective
  Collective collective = Collective::all_reduce;
  bool redone = false;  // in F, and again where the attention is recomputed (selective)
  // Of a collective: it runs beside these kernels, by their places in the list, and takes time only beyond theirs.
  std::vector<std::size_t> beside = {};
};

struct KernelContext {
  std::int64_t sequence = 0;  // the whole one, also of a slice
  std::int64_t microbatch = 1;
  ElementType precision = ElementType::bf16;
  const Software& software;
  Slice slice = {};  // of each sequence
};

// Of a sequence, or of the slice.
[[nodiscard]] std::int64_t tokens_of(const KernelContext& context);

// What `operations` of a model needs to describe the same kernels: those of a slice, over its own tokens, attention
// over all keys up to its end.
[[nodiscard]] OperationContext operation_context(const KernelContext& context);

// Of one block's operations as a layout divides them, and the collectives of each microbatch that follow from it, but
// those of statistics. With `tensor_overlap` the reduction of an input's gradient runs beside the weight gradients of
// the matmuls that made it, and what I gathers again beside their input gradients (arXiv 2205.05198, section 4.2.2).
[[nodiscard]] std::vector<Kernel> block_kernels(const std::vector<Operation>& operations, const KernelContext& context,
                                                const PlacedBlock& placed);

// Of one kernel alone; a collective among `group`.
[[nodiscard]] Seconds kernel_time(const Kernel& kernel, const Machine& machine, const GroupPlacement& group);

struct PhaseTimes {
  Seconds forward;
  Seconds input_gradient;   // alone
  Seconds weight_gradient;  // alone
  Seconds hidden;           // what a full backward saves on both: collectives of I that run beside matmuls of W
  Seconds redone;           // of the forward, what selective recompute does again
};

// Sums over the list, each phase at least what the host needs to launch its kernels.
[[nodiscard]] PhaseTimes phase_times(const std::vector<Kernel>& kernels, const Machine& machine,
                                     const GroupPlacement& group);

}  // namespace plumb
