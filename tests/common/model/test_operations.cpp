// FLOPs and bytes against formulas written here once more, from the papers, and against counting.
#include "common/model/operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t h = 64;
constexpr std::int64_t length = 256;
constexpr OperationContext context = {.sequence = length};

Model with_layer(const Layer& layer) {
  return Model{.vocabulary = 1000, .hidden = h, .layers = {layer}, .final_norm = layer.norm};
}

OperationTotals totals_of(const Layer& layer, const OperationContext& at = context) {
  return totals(layer_operations(with_layer(layer), 0, at));
}

// The mixer alone, between nothing.
OperationTotals totals_of_mixer(const Mixer& mixer) {
  OperationTotals all = totals_of(Layer{.mixer = mixer, .norms = 1});
  all.kept_bytes -= 4 * h + 4;
  return all;
}

const Operation& named(const std::vector<Operation>& operations, std::string_view name) {
  const auto found =
      std::find_if(operations.begin(), operations.end(), [&](const Operation& each) { return each.name == name; });
  REQUIRE(found != operations.end());
  return *found;
}

// Keys that all queries of a sequence see, counted one by one.
double counted_mean_keys(const SoftmaxAttention& attention, std::int64_t sequence) {
  std::int64_t count = 0;
  for (std::int64_t query = 0; query < sequence; ++query) {
    for (std::int64_t key = 0; key < sequence; ++key) {
      const bool allowed = !attention.causal || key <= query;
      const bool near = !attention.window || query - key < *attention.window;
      if (allowed && near) ++count;
    }
  }
  return static_cast<double>(count) / static_cast<double>(sequence);
}

const Layer gpt_layer = {
    .mixer =
        SoftmaxAttention{
            .heads = 4, .kv_heads = 4, .head_dim = 16, .value_dim = 16, .qkv_bias = true, .out_bias = true},
    .mlp = DenseMlp{.width = 4 * h, .activation = Activation::gelu, .bias = true},
    .norm = NormKind::layernorm};

}  // namespace

TEST_CASE("mean keys equal a count of the mask") {
  for (const std::int64_t sequence : {1, 2, 7, 64, 100}) {
    SoftmaxAttention attention;
    CHECK(mean_keys(attention, sequence) == Approx(counted_mean_keys(attention, sequence)));
    for (const std::int64_t window : {1, 2, 6, 7, 8, 63, 64, 99, 100, 1000}) {
      attention.window = window;
      INFO(sequence << " tokens, window " << window);
      CHECK(mean_keys(attention, sequence) == Approx(counted_mean_keys(attention, sequence)).epsilon(1e-12));
    }
    attention.window.reset();
    attention.causal = false;
    CHECK(mean_keys(attention, sequence) == counted_mean_keys(attention, sequence));
  }
}

TEST_CASE("mean keys of slices equal a count of their rows of the mask") {
  const std::int64_t sequence = 60;
  for (const std::int64_t window : {1, 2, 9, 10, 11, 14, 15, 16, 29, 30, 31, 59, 60, 1000}) {
    for (const int slices : {1, 2, 3, 4, 6}) {
      const std::int64_t tokens = sequence / slices;
      const SoftmaxAttention attention{.window = window};
      for (int slice = 0; slice < slices; ++slice) {
        std::int64_t count = 0;
        for (std::int64_t query = slice * tokens; query < (slice + 1) * tokens; ++query) {
          for (std::int64_t key = 0; key <= query; ++key) count += query - key < window ? 1 : 0;
        }
        INFO("window " << window << ", slice " << slice << " of " << slices);
        const double mean = static_cast<double>(count) / static_cast<double>(tokens);
        CHECK(mean_keys(attention, tokens, slice * tokens) == Approx(mean).epsilon(1e-12));
      }
    }
  }
}

// By exec/stage/primitives: of a slice one mask at a time, of its own keys or of those of a piece before it.
TEST_CASE("attention on a host holds a tile of scores while it runs, and in a window that is masked a mask") {
  Model model{.vocabulary = 64, .hidden = 32};
  SoftmaxAttention attention{.heads = 4, .kv_heads = 4, .head_dim = 8, .value_dim = 8};
  const auto workspace = [&](std::optional<std::int64_t> window, const OperationContext& context) {
    attention.window = window;
    model.layers = {{.mixer = attention, .mlp = DenseMlp{.width = 64}}};
    double sum = 0;
    for (const Operation& operation : layer_operations(model, 0, context)) sum += operation.workspace_bytes;
    return sum;
  };
  OperationContext context{.sequence = 100, .framework_on_host = true};
  // Of 32 queries and all keys, up to 512: scores and gradients, in fp32 and in bf16.
  double tile = 2 * 32 * 100 * (4 + 2);
  CHECK(workspace(std::nullopt, context) == tile);
  CHECK(workspace(100, context) == tile);
  CHECK(workspace(99, context) == tile + 2 * 100 * 100);
  CHECK(workspace(10, context) == tile + 2 * 100 * 100);
  context.before = context.after = 100;
  tile *= 2;
  CHECK(workspace(10, context) == tile + 2 * 100 * 100);
  CHECK(workspace(110, context) == tile + 2 * 100 * 100);
  context.before = 200;
  tile *= 1.5;
  context.after = 0;
  CHECK(workspace(110, context) == tile + 2 * 100 * 109);
  context.before = 0;
  tile /= 3;
  context.after = 200;
  CHECK(workspace(110, context) == tile);
  context.activations = ElementType::fp32;
  for (const auto& [tokens, queries, keys] : {std::array{20, 20, 20}, {200, 64, 200}, {1000, 256, 512}}) {
    context.sequence = tokens;
    context.after = 0;
    CHECK(workspace(std::nullopt, context) == 2 * 4 * queries * keys);
  }
  context.framework_on_host = false;
  CHECK(workspace(10, context) == 0);
}

TEST_CASE("a GPT model costs 72 B L s h² (1 + n/(6h) + V/(12 L h)), n the mean keys (arXiv 2104.04473, eq. 3)") {
  Model model = with_layer(gpt_layer);
  model.layers.assign(6, gpt_layer);
  const double layers = 6;
  const double batch = 3;
  const double keys = (length + 1) / 2.0;
  const double expected = 72 * batch * layers * length * h * h * (1 + keys / (6 * h) + 1000 / (12 * layers * h));
  CHECK(model_flops(model, length, 3).value == Approx(expected).epsilon(1e-12));
  // An MTP module is one layer more, a projection of 2h² and the head once more.
  model.mtp_modules = 1;
  const double module = 72 * batch * length * h * h * (1 + keys / (6 * h) + 2.0 / 12 + 1000 / (12.0 * h));
  CHECK(model_flops(model, length, 3).value == Approx(expected + module).epsilon(1e-12));
}

TEST_CASE("flash attention costs 5/2 of its forward in I, nothing in W") {
  const std::vector<Operation> operations = layer_operations(with_layer(gpt_layer), 0, context);
  const Operation& core = named(operations, "attention.core");
  CHECK(core.forward.value == 4 * h * (length + 1) / 2.0);
  CHECK(core.input_gradient.value == 2.5 * core.forward.value);
  CHECK(core.weight_gradient.value == 0);
}

TEST_CASE("a GPT block keeps 32h + 4a + 16 bytes, a Llama block 8h + 4(a+g)d + 6f + 4a + 8") {
  CHECK(totals_of(gpt_layer).kept_bytes == 32 * h + 4 * 4 + 16);
  const std::int64_t a = 8;
  const std::int64_t g = 2;
  const std::int64_t d = 12;
  const std::int64_t f = 200;
  const Layer llama = {.mixer = SoftmaxAttention{.heads = a, .kv_heads = g, .head_dim = d, .value_dim = d},
                       .mlp = DenseMlp{.width = f}};
  CHECK(totals_of(llama).kept_bytes == 8 * h + 4 * (a + g) * d + 6 * f + 4 * a + 8);
  CHECK(totals_of(llama).kept_for_weight_bytes == 8 * h + 4 * (a + g) * d + 6 * f);
  // In fp32 all but the statistics doubles.
  CHECK(totals_of(llama, {.sequence = length, .activations = ElementType::fp32}).kept_bytes ==
        2 * (8 * h + 4 * (a + g) * d + 6 * f) + 4 * a + 8);
}

TEST_CASE("qk-norm, output gate and Gemma's two more norms keep their own tensors") {
  SoftmaxAttention attention = {.heads = 8, .kv_heads = 2, .head_dim = 12, .value_dim = 12};
  const double plain = totals_of_mixer(attention).kept_bytes;
  attention.qk_norm = true;
  CHECK(totals_of_mixer(attention).kept_bytes - plain == 2 * (8 + 2) * 12 + 4 * (8 + 2));
  attention.output_gate = true;
  CHECK(totals_of_mixer(attention).kept_bytes - plain == 2 * (8 + 2) * 12 + 4 * (8 + 2) + 4 * 8 * 12);
  Layer layer = {.mixer = attention, .mlp = DenseMlp{.width = 10}};
  const double two = totals_of(layer).kept_bytes;
  layer.norms = 4;
  CHECK(totals_of(layer).kept_bytes - two == 2 * (2 * h + 4));
}

// Kernel by kernel, bytes of an element that each reads and writes, as Llama's reference code runs uncompiled.
TEST_CASE("eager operations each go over memory: rotary embeddings in fp32, activations, copies of key-value heads") {
  const std::int64_t f = 96;
  const std::int64_t d = 16;
  const auto operations = [&](std::int64_t kv_heads, bool eager, ElementType activations) {
    const Layer layer{.mixer = SoftmaxAttention{.heads = 4, .kv_heads = kv_heads, .head_dim = d, .value_dim = d},
                      .mlp = DenseMlp{.width = f, .activation = Activation::swiglu}};
    return layer_operations(with_layer(layer), 0, {.sequence = length, .activations = activations, .eager = eager});
  };
  const std::vector<Operation> all = operations(2, true, ElementType::bf16);
  const std::vector<Operation> fused = operations(2, false, ElementType::bf16);
  const StreamedBytes& rotary = named(all, "attention.rotary").streamed;
  const double rotated = (4 + 2) * d;
  CHECK(rotary.forward == ((2 + 4) + (4 + 4) + (4 + 2)) * rotated);  // to fp32, times complex numbers, back
  CHECK(rotary.input_gradient == rotary.forward);
  CHECK(named(fused, "attention.rotary").streamed.forward == (2 + 2) * rotated);
  CHECK(named(operations(2, true, ElementType::fp32), "attention.rotary").streamed.forward == (4 + 4) * rotated);
  const StreamedBytes& repeat = named(all, "attention.repeat").streamed;  // two heads read, four written
  CHECK(repeat.forward == 2 * (2 + 4) * (d + d));
  CHECK(repeat.input_gradient == repeat.forward);
  const StreamedBytes& activation = named(all, "mlp.activation").streamed;
  CHECK(activation.forward == ((2 + 2) + (4 + 2)) * f);                   // SiLU, product
  CHECK(activation.input_gradient == ((4 + 2) + (4 + 2) + (4 + 2)) * f);  // the product's two gradients, SiLU's
  CHECK(totals(all).kept_bytes - totals(fused).kept_bytes == 2 * f + 2 * (4 - 2) * (d + d));
  CHECK(totals(operations(4, true, ElementType::bf16)).kept_bytes - 2 * f ==
        totals(operations(4, false, ElementType::bf16)).kept_bytes);
}

// x.float(), its square, the mean of that, x times the reciprocal deviation, back to 16 bits, times the weight; and
// what autograd makes of it: kernel by kernel, bytes of an element that each reads and writes.
TEST_CASE("an RMSNorm of a framework's operations goes over memory 36 and 88 bytes an element, and keeps 8") {
  const auto norm = [](NormKind kind, bool eager, ElementType activations) {
    const Layer layer{.mixer = SoftmaxAttention{.heads = 4, .kv_heads = 4, .head_dim = 16, .value_dim = 16},
                      .mlp = DenseMlp{.width = 96},
                      .norm = kind};
    const OperationContext at{.sequence = length, .activations = activations, .eager_norms = eager};
    return named(layer_operations(with_layer(layer), 0, at), "norm_1");
  };
  const Operation composed = norm(NormKind::rmsnorm, true, ElementType::bf16);
  CHECK(composed.streamed.forward == ((2 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 2) + (2 + 2)) * h);
  const double of_weight = (2 + 2) + (2 + 2 + 2 + 2);    // x's part, the weight's own: a product and its sum
  const double of_product = (4 + 4) + (4 + 4 + 4 + 4);   // x's part, the reciprocal deviation's
  const double of_square = (4 + 4) + (4 + 4) + (8 + 4);  // x to the first, twice it, times the gradient
  const double others = (2 + 4) + (8 + 4) + (4 + 2);     // to fp32, the sum of x's two parts, back
  CHECK(composed.streamed.input_gradient == (of_weight + of_product + of_square + others) * h);
  const Operation kernel = norm(NormKind::rmsnorm, false, ElementType::bf16);
  CHECK(kernel.streamed.forward == (2 + 2) * h);
  CHECK(composed.kept_bytes - kernel.kept_bytes == (4 + 2 + 2 - (2 + 2)) * h);
  CHECK(norm(NormKind::layernorm, true, ElementType::bf16) == norm(NormKind::layernorm, false, ElementType::bf16));
  const Operation whole = norm(NormKind::rmsnorm, true, ElementType::fp32);
  CHECK(whole.streamed.forward == (8 + 4 + 8 + 8) * h);
  CHECK(whole.kept_bytes - norm(NormKind::rmsnorm, false, ElementType::fp32).kept_bytes == 4 * h);
}

TEST_CASE("a mixture of experts costs its router, the chosen and the shared experts, and keeps what it sends") {
  const double E = 16;
  const double k = 3;
  const double fe = 20;
  const double fs = 40;
  const Layer layer = {.mlp = MoeMlp{.experts = 16, .top_k = 3, .width = 20, .shared_width = 40}, .norms = 1};
  const OperationTotals sums = totals_of(layer);
  const double weights = h * E + k * 3 * h * fe + 3 * h * fs;
  CHECK(sums.forward.value == 2 * weights);
  CHECK(sums.input_gradient.value == 2 * weights);
  CHECK(sums.weight_gradient.value == 2 * weights);
  CHECK(sums.kept_bytes == 4 * h + 4 + 4 * E + k * (4 * h + 6 * fe + 26) + 6 * fs);
  // Inputs: norm's output, dispatched tokens, products; output gradients of router, gate, up and down.
  CHECK(sums.kept_for_weight_bytes == 2 * h + 2 * E + k * (2 * h + 2 * fe + 4 * fe + 2 * h) + 2 * fs + 4 * fs + 2 * h);
}

TEST_CASE("latent attention: low-rank projections, and keys materialised per head") {
  const LatentAttention attention = {
      .heads = 4, .q_lora_rank = 24, .kv_lora_rank = 20, .nope_dim = 16, .rope_dim = 8, .value_dim = 12};
  const double keys = (length + 1) / 2.0;
  const double weights = h * 24 + 24 * 4 * 24 + h * 28 + 20 * 4 * 28 + 4 * 12 * h;
  OperationTotals sums = totals_of_mixer(attention);
  CHECK(sums.forward.value == 2 * weights + 2 * 4 * (24 + 12) * keys);
  CHECK(sums.input_gradient.value == 2 * weights + 2 * 4 * (3 * 24 + 2 * 12) * keys);
  CHECK(sums.weight_gradient.value == 2 * weights);
  CHECK(sums.kept_bytes == 4 * 24 + 4 + 4 * 20 + 2 * 8 + 4 + 2 * 4 * (2 * 24 + 2 * 12) + 4 * 4);
  LatentAttention direct = attention;
  direct.q_lora_rank.reset();
  sums = totals_of_mixer(direct);
  CHECK(sums.weight_gradient.value == 2 * (h * 4 * 24 + h * 28 + 20 * 4 * 28 + 4 * 12 * h));
  CHECK(sums.kept_bytes == 4 * 20 + 2 * 8 + 4 + 2 * 4 * (2 * 24 + 2 * 12) + 4 * 4);
}

TEST_CASE("gated delta rule: products and triangular solves per chunk") {
  const GatedDelta delta = {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 24};
  const double K = 2 * 16;
  const double U = 4 * 24;
  const double weights = h * (2 * K + 2 * U) + 2 * 4 * h + U * h;
  const double conv = 2 * 4 * (2 * K + U);
  const double C = 64;
  const double products = C * (2 * 16 + 24) + 3 * 16 * 24;
  const double solve = C * (16 + 24);
  const OperationTotals sums = totals_of_mixer(delta);
  CHECK(sums.forward.value == 2 * weights + conv + 4 * (2 * products + solve));
  CHECK(sums.input_gradient.value ==
        Approx(2 * weights + conv + 4 * (4 * products + 2 * solve + solve - 8 * C * 16 * 24 / length)));
  CHECK(sums.weight_gradient.value == 2 * weights + conv);
  CHECK(sums.kept_bytes == 4 * (2 * K + U) + 2 * U + 8 * 4 + 2 * C * 4 + 2 * U + 2 * U + 4 * 4);
  // A sequence shorter than a chunk: one chunk of that length.
  const std::vector<Operation> operations =
      layer_operations(with_layer(Layer{.mixer = delta, .norms = 1}), 0, {.sequence = 16});
  CHECK(named(operations, "linear.core").forward.value ==
        4 * (2 * (16 * (2 * 16 + 24) + 3 * 16 * 24) + 16 * (16 + 24)));
  CHECK(named(operations, "linear.core").input_gradient.value > 0);
}

TEST_CASE("gated delta rule with a gate per channel") {
  const OperationTotals sums = totals_of_mixer(ChannelGatedDelta{.heads = 4, .head_dim = 16});
  const double D = 4 * 16;
  const double weights = 4 * h * D + 2 * (h * 16 + 16 * D) + h * 4;
  const double conv = 2 * 4 * 3 * D;
  const double C = 64;
  const double core = 4 * (2 * (C * 5 * 16 + 3 * 16 * 16) + 2 * C * C / 3);
  CHECK(sums.forward.value == Approx(2 * weights + conv + core));
  CHECK(sums.input_gradient.value == Approx(2 * weights + conv + 2 * core - 4 * 8 * C * 16 * 16 / length));
  CHECK(sums.weight_gradient.value == 2 * weights + conv);
}

TEST_CASE("lightning attention: 2(2Cd + 2d²) per head, backward twice less the ends") {
  const OperationTotals sums = totals_of_mixer(Lightning{.heads = 4, .head_dim = 16, .block = 64});
  const double weights = 5 * h * 4 * 16;
  const double core = 4 * 2 * (2 * 64 * 16 + 2 * 16 * 16);
  CHECK(sums.forward.value == 2 * weights + core);
  CHECK(sums.input_gradient.value == Approx(2 * weights + 2 * core - 4 * 6.0 * 64 * 16 * 16 / length));
  CHECK(sums.kept_bytes == (12 + 2 + 2 + 2 + 2) * 4 * 16 + 4);
}

TEST_CASE("Mamba-1 and Mamba-2") {
  const double di = 2 * h;
  const OperationTotals one = totals_of_mixer(Mamba{.inner = 2 * h, .state = 8, .dt_rank = 4});
  const double weights = 2 * h * di + di * (4 + 16) + 4 * di + di * h;
  CHECK(one.forward.value == 2 * weights + 2 * 4 * di + 9 * di * 8);
  CHECK(one.weight_gradient.value == 2 * weights + 2 * 4 * di);
  CHECK(one.kept_bytes == 4 * di + 2 * (4 + 16) + 2 * di);
  CHECK(totals_of_mixer(Mamba{.inner = 2 * h, .state = 8, .dt_rank = 4, .inner_norms = true}).kept_bytes >
        one.kept_bytes);

  const double H = 4;
  const double P = 32;
  const double N = 16;
  const double C = 128;
  const OperationTotals two =
      totals_of_mixer(Mamba2{.heads = 4, .head_dim = 32, .groups = 2, .state = 16, .chunk = 128});
  const double inner = H * P;
  const double weights2 = h * (2 * inner + 2 * 2 * N + H) + inner * h;
  const double conv = 2 * 4 * (inner + 2 * 2 * N);
  const double core = H * (2 * (C * N + C * P + 2 * N * P) + 2 * N * P / C);
  CHECK(two.forward.value == 2 * weights2 + conv + core);
  CHECK(two.input_gradient.value == 2 * weights2 + conv + 2 * core);
  CHECK(two.kept_bytes == 2 * (2 * inner + 2 * 2 * N + H) + 2 * inner + 2 * inner);
}

TEST_CASE("embedding, final norm, head and loss, and a tied head costs the same") {
  Model model = with_layer(Layer{.mlp = DenseMlp{.width = 8}, .norms = 1});
  const OperationTotals embedding = totals(embedding_operations(model, context));
  CHECK(embedding.forward.value == 0);
  CHECK(embedding.kept_bytes == 8);
  const OperationTotals head = totals(head_operations(model, context));
  CHECK(head.forward.value == 2 * 1000 * h);
  CHECK(head.kept_bytes == 4 * h + 4 + 4 * 1000 + 8);
  CHECK(head.kept_for_weight_bytes == 2 * h + 2 * 1000);
  model.tied_embeddings = true;
  CHECK(totals(head_operations(model, context)) == head);
}

TEST_CASE("ViT: patches of all tokens but one need no input gradient, the class head sees one token") {
  Model model = with_layer(gpt_layer);
  model.vocabulary = 0;
  model.vision = Vision{.image_size = 32, .patch_size = 8, .channels = 3, .classes = 10};
  const std::int64_t sequence = tokens(*model.vision);
  REQUIRE(sequence == 17);
  const OperationTotals patches = totals(embedding_operations(model, {.sequence = sequence}));
  CHECK(patches.forward.value * 17 == Approx(16 * 2 * 3 * 64 * h));
  CHECK(patches.input_gradient.value == 0);
  CHECK(patches.weight_gradient == patches.forward);
  const OperationTotals head = totals(head_operations(model, {.sequence = sequence}));
  CHECK(head.forward.value * 17 == Approx(2 * h * 10));
  // The norm's input of every token with its statistics; its output, the logits' logarithms and the label once an
  // image.
  const double statistics = model.final_norm == NormKind::layernorm ? 8 : 4;
  CHECK(head.kept_bytes * 17 == Approx(17 * (2 * h + statistics) + 2 * h + 4 * 10 + 8));
  CHECK(head.kept_for_weight_bytes * 17 == Approx(2 * h + 2 * 10));
}

TEST_CASE("a multi-token-prediction module costs a layer, its projection and the head once more") {
  Model model = with_layer(gpt_layer);
  CHECK(mtp_operations(model, context).empty());
  model.mtp_modules = 1;
  const double layer = totals_of(gpt_layer).forward.value;
  CHECK(totals(mtp_operations(model, context)).forward.value == layer + 2 * (2 * h * h + 1000 * h));
}

TEST_CASE("W never costs more than I plus the convolution, and every kind keeps something for its backward") {
  const Mixer mixers[] = {SoftmaxAttention{.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16, .window = 32},
                          LatentAttention{.heads = 4, .kv_lora_rank = 8, .nope_dim = 8, .rope_dim = 8, .value_dim = 8},
                          GatedDelta{.key_heads = 2, .value_heads = 2, .key_dim = 8, .value_dim = 8},
                          ChannelGatedDelta{.heads = 2, .head_dim = 8},
                          Lightning{.heads = 2, .head_dim = 8},
                          Mamba{.inner = 64, .state = 4, .dt_rank = 4},
                          Mamba2{.heads = 2, .head_dim = 8, .state = 8}};
  for (const Mixer& mixer : mixers) {
    for (const std::int64_t sequence : {1, 16, 100, 4096}) {
      const Layer layer = {.mixer = mixer, .norms = 1};
      INFO(kind_name(layer) << " at " << sequence);
      const OperationTotals sums = totals_of(layer, {.sequence = sequence});
      CHECK(sums.weight_gradient.value <= sums.input_gradient.value);
      CHECK(sums.kept_bytes > 4 * h + 4);
      CHECK(std::isfinite(sums.forward.value));
      for (const Operation& operation : layer_operations(with_layer(layer), 0, {.sequence = sequence})) {
        CHECK(operation.input_gradient.value >= 0);
        CHECK(operation.kept_bytes >= 0);
      }
    }
  }
}

TEST_CASE("a sequence of no tokens is refused") {
  CHECK_THROWS_AS(layer_operations(with_layer(gpt_layer), 0, {.sequence = 0}), InputError);
  CHECK_THROWS_AS(head_operations(with_layer(gpt_layer), {.sequence = -1}), InputError);
}
