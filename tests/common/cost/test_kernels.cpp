// The kernels of a block: their FLOPs are the operations', their messages those of the tensor layout's papers.
#include "common/cost/kernels.hpp"

#include "common/model/files/model_block.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t tokens_of_sequence = 512;
constexpr std::int64_t hidden = 1024;

Model gpt() {
  return Model{
      .vocabulary = 1024,
      .hidden = hidden,
      .layers = {Layer{
          .mixer =
              SoftmaxAttention{
                  .heads = 16, .kv_heads = 16, .head_dim = 64, .value_dim = 64, .qkv_bias = true, .out_bias = true},
          .mlp = DenseMlp{.width = 4 * hidden, .activation = Activation::gelu, .bias = true},
          .norm = NormKind::layernorm}},
      .final_norm = NormKind::layernorm,
      .positions = Positions::learned,
      .max_positions = tokens_of_sequence};
}

std::vector<Kernel> layer(const Software& software, int tensor, bool sequence_parallel) {
  const KernelContext context{
      .sequence = tokens_of_sequence, .microbatch = 2, .precision = ElementType::fp16, .software = software};
  const PlacedBlock placed = place_block(gpt(), 1, {.degree = tensor, .sequence_parallel = sequence_parallel},
                                         {.sequences = context.microbatch, .sequence = context.sequence});
  return block_kernels(layer_operations(gpt(), 0, operation_context(context)), context, placed);
}

double matmul_flops(const std::vector<Kernel>& kernels, Phase phase) {
  double sum = 0;
  for (const Kernel& kernel : kernels) {
    if (kernel.kind != KernelKind::matmul || kernel.phase != phase) continue;
    sum += 2 * kernel.matmul.batch * kernel.matmul.m * kernel.matmul.n * kernel.matmul.k;
  }
  return sum;
}

// Bytes of whole tensors, by kind and phase.
double bytes_of(const std::vector<Kernel>& kernels, Collective collective, Phase phase) {
  double sum = 0;
  for (const Kernel& kernel : kernels) {
    const bool counted = kernel.kind == KernelKind::collective && kernel.collective == collective;
    if (counted && kernel.phase == phase) sum += kernel.bytes;
  }
  return sum;
}

Software unfused() { return {.flash_attention = false, .dropout = true, .fused_projections = true}; }

}  // namespace

TEST_CASE("a layer's matmuls are 24 T h² + 4 T s h FLOPs in F, as many each in I and W but for the scores") {
  const double T = 2.0 * tokens_of_sequence;
  const double weights = 24 * T * hidden * hidden;
  const double scores = 4 * T * tokens_of_sequence * hidden;
  for (const int tensor : {1, 4}) {
    for (const bool fused : {true, false}) {
      Software software = unfused();
      software.fused_projections = fused;
      const std::vector<Kernel> kernels = layer(software, tensor, false);
      CHECK(matmul_flops(kernels, Phase::forward) == Approx((weights + scores) / tensor));
      CHECK(matmul_flops(kernels, Phase::input_gradient) == Approx((weights + 2 * scores) / tensor));
      CHECK(matmul_flops(kernels, Phase::weight_gradient) == Approx(weights / tensor));
    }
  }
}

// arXiv 1909.08053, section 3: two all-reduces of bsh in each direction.
TEST_CASE("a layer in 1d tensor layout reduces its activations twice in F and twice in I") {
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  const std::vector<Kernel> kernels = layer(unfused(), 4, false);
  CHECK(bytes_of(kernels, Collective::all_reduce, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(kernels, Collective::all_reduce, Phase::input_gradient) == 2 * bsh);
  CHECK(bytes_of(kernels, Collective::all_gather, Phase::forward) == 0);
  CHECK(bytes_of(layer(unfused(), 1, false), Collective::all_reduce, Phase::forward) == 0);
}

// arXiv 2205.05198, section 4.2.2: the same volume as gathers and scatters, and the inputs gathered once more in I.
TEST_CASE("with sequence parallelism they are gathered and scattered") {
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  const std::vector<Kernel> kernels = layer(unfused(), 4, true);
  CHECK(bytes_of(kernels, Collective::all_gather, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(kernels, Collective::reduce_scatter, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(kernels, Collective::all_gather, Phase::input_gradient) == 4 * bsh);
  CHECK(bytes_of(kernels, Collective::reduce_scatter, Phase::input_gradient) == 2 * bsh);
  CHECK(bytes_of(kernels, Collective::all_reduce, Phase::forward) == 0);
}

TEST_CASE("collectives of the backward hide behind matmuls only where the software overlaps them") {
  Machine machine;
  machine.device.peak.value = {1e14};
  machine.device.matmul_efficiency.value = 1;
  machine.device.attention_efficiency.value = 1;
  machine.device.memory_bandwidth.value = {1e18};
  machine.device.memory_efficiency.value = 1;
  machine.collective_bandwidth.value = {1e12};
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  Software software = unfused();
  const PhaseTimes exposed = phase_times(layer(software, 4, false), machine, group);
  software.tensor_overlap = true;
  const PhaseTimes hidden_times = phase_times(layer(software, 4, false), machine, group);
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  CHECK(exposed.hidden.value == 0);
  // Alone, I takes as long: what its collectives hide behind is W. Together both are hidden whole.
  CHECK(hidden_times.input_gradient.value == Approx(exposed.input_gradient.value));
  CHECK(hidden_times.hidden.value == Approx(2 * 2 * 3.0 / 4 * bsh / 1e12));
}

TEST_CASE("the host's launches are the least that a phase takes") {
  Machine machine;
  machine.device.peak.value = {1e30};
  machine.device.matmul_efficiency.value = machine.device.attention_efficiency.value = 1;
  machine.device.memory_bandwidth.value = {1e30};
  machine.device.memory_efficiency.value = 1;
  machine.device.launch_time.value = {1e-5};
  const std::vector<Kernel> kernels = layer(unfused(), 1, false);
  const auto launches = std::count_if(kernels.begin(), kernels.end(),
                                      [](const Kernel& kernel) { return kernel.phase == Phase::forward; });
  CHECK(phase_times(kernels, machine, {}).forward.value == Approx(1e-5 * static_cast<double>(launches)));
}
