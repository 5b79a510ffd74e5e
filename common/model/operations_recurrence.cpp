#include <algorithm>
#include <cmath>

#include "common/model/chunk_length.hpp"
#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

// A sequence shorter than a chunk is one chunk.
double chunk_length(const OperationList& list, std::int64_t chunk) { return std::min(real(chunk), list.sequence()); }

// Tensors that autograd saves of the chunked form in exec/stage/primitives/delta_rule.cpp, in fp32. Convolution, gates,
// z and y count with their own operations. A batched matmul saves a copy of an operand whose heads follow its tokens,
// and of one chunk of it; an operand that was padded is contiguous, and is saved whole. The first chunk of a sequence
// has no carried state, and the last one passes none on. Every other chunk saves the state that it passes on, also to
// the next slice.
void keep_composed(OperationList& list, const GatedDelta& delta) {
  const double element = list.element();
  const double heads = real(delta.value_heads);
  const double keys = heads * real(delta.key_dim);
  const double values = heads * real(delta.value_dim);
  const double chunk = real(chunk_length(delta, list.tokens()));
  const double chunks = std::ceil(list.sequence() / chunk);
  const double all_but_one = 1 - 1 / chunks;
  const double padded = chunks * chunk / list.sequence();  // the last chunk is as long as the others
  const bool contiguous = padded > 1;
  const double taken = list.context().before > 0 ? 1 : all_but_one;
  const double carried = list.context().after > 0 ? 1 : all_but_one;
  const auto keep = [&](const char* name, double bytes) {
    list.pass(name, OperationKind::elementwise, {}, {.until_input_gradient = bytes}).site = "linear.core";
  };
  // Behind the convolution: an fp32 one is seen in parts, any other is widened; a key head is repeated for its values.
  const bool widens = element < fp32_bytes;
  const bool repeats = delta.key_heads != delta.value_heads;
  const double mixed = real(2 * delta.key_heads * delta.key_dim) + values;
  keep("linear.mixed", widens ? fp32_bytes * values : element * mixed);
  for (const char* name : {"linear.query_in", "linear.key_in"}) keep(name, widens || repeats ? fp32_bytes * keys : 0);
  for (const char* name : {"linear.query", "linear.key", "linear.scaled_key"}) keep(name, fp32_bytes * keys * padded);
  for (const char* name :
       {"linear.query.copy", "linear.key.copy_of_solve", "linear.key.copy_of_scores", "linear.scaled_key.copy"}) {
    keep(name, contiguous ? 0 : fp32_bytes * keys);
  }
  keep("linear.grown_query", fp32_bytes * keys * (contiguous ? padded : taken));
  keep("linear.fading_key", fp32_bytes * keys * (contiguous ? padded : carried));
  for (const char* name :
       {"linear.within", "linear.coupling", "linear.coupling.faded", "linear.scores", "linear.scores.faded"}) {
    keep(name, fp32_bytes * heads * chunk * padded);
  }
  keep("linear.solved", fp32_bytes * (keys + values) * padded);
  keep("linear.added", fp32_bytes * values * padded * taken);
  keep("linear.states", fp32_bytes * keys * real(delta.value_dim) / chunk * padded * carried);
  keep("linear.factors", (5 * fp32_bytes + element) * heads);  // norms of query and key, gates, decays
}

// In a slice the convolution begins with the last inputs of the slice before (exec/stage/modules/gated_delta.cpp).
void keep_inputs_before(Operation& conv, const OperationList& list, std::int64_t kernel) {
  const double all = 1 + real(std::min(kernel - 1, list.context().before)) / list.sequence();
  for (double* bytes : {&conv.kept_bytes, &conv.kept_for_weight_bytes, &conv.kept_as_input_bytes}) *bytes *= all;
}

}  // namespace

// Chunked form of arXiv 2412.06464, per value head: scores, their use, three products with the state, and two
// triangular solves of C(dk + dv). Backward: twice the products, the matrix's gradient and the solves again; the first
// and the last chunk of a sequence need no gradient of a state. Chunk states are computed again in the backward, not
// kept.
void add_recurrence(OperationList& list, const GatedDelta& delta) {
  const double element = list.element();
  const double keys = real(delta.key_heads * delta.key_dim);
  const double heads = real(delta.value_heads);
  const double values = heads * real(delta.value_dim);
  // Kernels have chunks of one length.
  const double chunk =
      list.context().composed ? real(chunk_length(delta, list.tokens())) : chunk_length(list, delta.chunk);
  const double key_dim = real(delta.key_dim);
  const double value_dim = real(delta.value_dim);
  const double products = chunk * (2 * key_dim + value_dim) + 3 * key_dim * value_dim;
  const double solve = chunk * (key_dim + value_dim);
  const double ends = list.ends() * 4 * chunk * key_dim * value_dim / list.sequence();
  for (const char* name : {"linear.q", "linear.k", "linear.v", "linear.z", "linear.beta", "linear.decay"}) {
    list.matmul(name);
  }
  Operation& conv = list.convolution("linear.conv", 2 * keys + values, real(delta.conv_kernel));
  keep_inputs_before(conv, list, delta.conv_kernel);
  if (list.context().composed) conv.kept_for_weight_bytes = 0;  // I leaves the gradient of its taps
  if (list.context().composed) keep_composed(list, delta);
  const double kernel_keeps = heads * (2 * fp32_bytes + element * chunk);
  // z, the output; of a kernel besides two fp32 gates per head and each chunk's C×C inverse.
  list.core("linear.core", OperationKind::recurrence,
            {.forward = heads * (2 * products + solve), .backward = heads * (4 * products + 3 * solve - ends)},
            {.until_input_gradient = 2 * element * values + (list.context().composed ? 0 : kernel_keeps)});
  list.pass("linear.norm", OperationKind::norm, {3 * values, 7 * values},
            {.until_input_gradient = element * values + fp32_bytes * heads,
             .until_weight_gradient = element * values,
             .as_input = element * values});
  list.matmul_of_latest("linear.out");
}

// Chunked form of arXiv 2510.26692 with an explicit inverse (2C²/3 per token by substitution). Two C×C matrices are
// kept.
void add_recurrence(OperationList& list, const ChannelGatedDelta& delta) {
  const double element = list.element();
  const double heads = real(delta.heads);
  const double head_dim = real(delta.head_dim);
  const double width = heads * head_dim;
  const double chunk = chunk_length(list, delta.chunk);
  const double forward = 2 * (5 * chunk * head_dim + 3 * head_dim * head_dim) + 2 * chunk * chunk / 3;
  const double ends = list.ends() * 4 * chunk * head_dim * head_dim / list.sequence();
  for (const char* name : {"linear.q", "linear.k", "linear.v", "linear.beta"}) list.matmul(name);
  for (const char* name : {"linear.decay", "linear.gate"}) {
    const std::string low_rank = name;
    list.matmul(low_rank + "_down");
    list.pass(low_rank + ".low_rank", OperationKind::elementwise, {},
              {.until_input_gradient = element * head_dim,
               .until_weight_gradient = element * head_dim,
               .as_input = element * head_dim});
    list.matmul(low_rank + "_up").input = low_rank + ".low_rank";
  }
  list.convolution("linear.conv", 3 * width, real(delta.conv_kernel));
  // fp32 decay per channel and beta per head, the output gate, the C×C matrices, the output.
  list.core("linear.core", OperationKind::recurrence,
            {.forward = heads * forward, .backward = heads * (2 * forward - ends)},
            {.until_input_gradient =
                 fp32_bytes * (width + heads) + element * width + 2 * element * chunk * heads + element * width});
  list.pass("linear.norm", OperationKind::norm, {3 * width, 7 * width},
            {.until_input_gradient = element * width + fp32_bytes * heads,
             .until_weight_gradient = element * width,
             .as_input = element * width});
  list.matmul_of_latest("linear.out");
}

// arXiv 2401.04658, algorithm 1: within a block scores and their use, between blocks the state; per head 2[2Cd + 2d²].
// The first and last block of a sequence need no gradient of a state. Block states are computed again, not kept.
void add_recurrence(OperationList& list, const Lightning& lightning) {
  const double element = list.element();
  const double heads = real(lightning.heads);
  const double head_dim = real(lightning.head_dim);
  const double width = heads * head_dim;
  const double block = chunk_length(list, lightning.block);
  const double forward = 2 * (2 * block * head_dim + 2 * head_dim * head_dim);
  const double ends = list.ends() * 3 * block * head_dim * head_dim / list.sequence();
  for (const char* name : {"lightning.q", "lightning.k", "lightning.v"}) list.matmul(name);
  // q, k and v before and after their activation, and the output.
  list.core("lightning.core", OperationKind::recurrence,
            {.forward = heads * forward, .backward = heads * (2 * forward - ends)},
            {.until_input_gradient = (6 + 1) * element * width});
  list.matmul("lightning.gate");
  // The norm's output, the gate, their product, and the norm's statistic.
  list.pass("lightning.norm", OperationKind::norm, {3 * width, 7 * width},
            {.until_input_gradient = 3 * element * width + fp32_bytes,
             .until_weight_gradient = element * width,
             .as_input = element * width});
  list.matmul_of_latest("lightning.out");
}

// Fused scan of arXiv 2312.00752, section 3.3: about 9 operations per channel and state, forward; convolution and dt
// are computed again in the backward.
void add_recurrence(OperationList& list, const Mamba& mamba) {
  const double element = list.element();
  const double inner = real(mamba.inner);
  const double inputs = real(mamba.dt_rank + 2 * mamba.state);
  list.matmul("mamba.in");
  Operation& conv = list.convolution("mamba.conv", inner, real(mamba.conv_kernel));
  conv.kept_bytes = 2 * element * inner;  // x and z, as projected
  conv.kept_as_input_bytes = 0;           // it is done again from x
  list.matmul_of_latest("mamba.x");
  const double parts = mamba.inner_norms ? inputs : 0;
  list.pass("mamba.x.parts", mamba.inner_norms ? OperationKind::norm : OperationKind::elementwise,
            {2 * parts, 5 * parts},
            {.until_input_gradient = element * inputs + (mamba.inner_norms ? element * inputs + 3 * fp32_bytes : 0),
             .until_weight_gradient = element * real(mamba.dt_rank)});
  list.matmul("mamba.dt").input = "mamba.x.parts";
  const double scan = 9 * inner * real(mamba.state);
  list.core("mamba.core", OperationKind::recurrence, {.forward = scan, .backward = 2 * scan},
            {.until_input_gradient = element * inner, .until_weight_gradient = element * inner});
  list.matmul_of_latest("mamba.out");
}

// State-space duality of arXiv 2405.21060, section 6, with the convolution computed again in the backward. Per head the
// scores and their use in a chunk, the states in and out, and passing the states on.
void add_recurrence(OperationList& list, const Mamba2& mamba) {
  const double element = list.element();
  const double heads = real(mamba.heads);
  const double head_dim = real(mamba.head_dim);
  const double state = real(mamba.state);
  const double inner = heads * head_dim;
  const double convolved = inner + 2 * real(mamba.groups) * state;
  const double chunk = chunk_length(list, mamba.chunk);
  const double forward = 2 * (chunk * state + chunk * head_dim + 2 * state * head_dim) + 2 * state * head_dim / chunk;
  list.matmul("mamba2.in");
  Operation& conv = list.convolution("mamba2.conv", convolved, real(mamba.conv_kernel));
  conv.kept_bytes = element * (inner + convolved + heads);  // gate, x, B, C and dt, as projected
  conv.kept_as_input_bytes = 0;
  list.core("mamba2.core", OperationKind::recurrence, {.forward = heads * forward, .backward = 2 * heads * forward},
            {.until_input_gradient = element * inner});
  list.pass(
      "mamba2.norm", OperationKind::norm, {3 * inner, 7 * inner},
      {.until_input_gradient = element * inner, .until_weight_gradient = element * inner, .as_input = element * inner});
  list.matmul_of_latest("mamba2.out");
}

}  // namespace plumb
