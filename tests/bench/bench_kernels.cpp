// Each kernel's time on this GPU and its share of the bound that memory sets, which a plain copy measures first; beside
// it the same of LibTorch's operations, where LibTorch has CUDA.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/device/cuda_check.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/lora.hpp"
#include "kernels/moe.hpp"
#include "kernels/quantise.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"
#include "tests/bench/aten_versions.hpp"

using namespace plumb::kernels;

namespace {

constexpr std::int64_t tokens = 8192;
constexpr std::int64_t hidden = 7168;
constexpr std::int64_t ffn = 18432;
constexpr double mib = 1 << 20;

// Device memory that lives as long as the program; zeros, for what is an index or a sum.
void* memory(std::int64_t bytes) {
  void* pointer = nullptr;
  PLUMB_CUDA_CHECK(cudaMalloc(&pointer, static_cast<std::size_t>(bytes)));
  PLUMB_CUDA_CHECK(cudaMemset(pointer, 0, static_cast<std::size_t>(bytes)));
  return pointer;
}

// 16-bit numbers of bf16 from -2 to 2, of either sign and any mantissa: on zeros the units that multiply draw less
// power and may be faster. Two of them are a finite fp32 number as well.
void* halves(std::int64_t count) {
  static const std::vector<std::uint16_t> numbers = [] {
    std::mt19937 generator(1);
    std::vector<std::uint16_t> made(std::size_t{1} << 22);
    for (std::uint16_t& number : made) {
      const auto bits = static_cast<std::uint32_t>(generator());
      number = static_cast<std::uint16_t>((bits & 0x807fU) | (120U + (bits >> 16U) % 8U) << 7U);
    }
    return made;
  }();
  auto* const begin = static_cast<std::uint16_t*>(memory(2 * count));
  for (std::int64_t at = 0; at < count; at += std::ssize(numbers)) {
    const auto part = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(numbers), count - at));
    PLUMB_CUDA_CHECK(cudaMemcpy(begin + at, numbers.data(), 2 * part, cudaMemcpyHostToDevice));
  }
  return begin;
}
float* floats(std::int64_t count) { return static_cast<float*>(memory(4 * count)); }

// The median of 20 after 3 to warm up, in seconds; the L2 cache is swept before each.
double seconds_of(const std::function<void()>& run) {
  static void* const sweep = memory(256 << 20);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  PLUMB_CUDA_CHECK(cudaEventCreate(&begin));
  PLUMB_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    PLUMB_CUDA_CHECK(cudaMemsetAsync(sweep, i, 256 << 20));
    PLUMB_CUDA_CHECK(cudaEventRecord(begin));
    run();
    PLUMB_CUDA_CHECK(cudaEventRecord(end));
    PLUMB_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    PLUMB_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 3) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

double bytes_per_s = 0;

void report(const std::string& name, double bytes, double flops, const std::function<void()>& run) {
  const double seconds = seconds_of(run);
  const double bound = bytes / bytes_per_s;
  std::printf("%-34s %9.1f %10.1f %8.0f %8.1f %7.1f%%", name.c_str(), seconds * 1e6, bytes / mib,
              bytes / seconds * 1e-9, flops / seconds * 1e-12, 100 * bound / seconds);
  if (const std::function<void()> aten = plumb::bench::aten_version(name, {tokens, hidden, ffn})) {
    const double of_aten = seconds_of(aten);
    std::printf(" %12.1f %7.1f%%\n", of_aten * 1e6, 100 * bound / of_aten);
  } else {
    std::printf(" %12s %8s\n", "-", "-");
  }
  std::fflush(stdout);
}

void measure_copy() {
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  void* const from = memory(bytes);
  void* const to = memory(bytes);
  bytes_per_s =
      2 * bytes / seconds_of([&] { PLUMB_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)); });
  std::printf("copy: %.0f GB/s, read and written\n", bytes_per_s * 1e-9);
  std::printf("%-34s %9s %10s %8s %8s %8s %12s %8s\n", "kernel", "us", "MiB", "GB/s", "TFLOP/s", "of bound",
              "LibTorch us", "of bound");
  PLUMB_CUDA_CHECK(cudaFree(from));
  PLUMB_CUDA_CHECK(cudaFree(to));
}

void norms() {
  const RmsNormShape shape = {.rows = tokens, .columns = hidden};
  constexpr double one = 2.0 * tokens * hidden;
  void* const x = halves(tokens * hidden);
  void* const residual = halves(tokens * hidden);
  void* const h = halves(tokens * hidden);
  void* const y = halves(tokens * hidden);
  void* const weight = halves(hidden);
  float* const rms = floats(tokens);
  float* const parts = floats(rms_norm_part_count(shape) * hidden);
  float* const gradient = floats(hidden);
  report("RMSNorm forward", 2 * one, 0,
         [&] { rms_norm_forward(shape, Type::bf16, {.x = x, .weight = weight, .y = y, .inverse_rms = rms}, {}); });
  report("RMSNorm forward + residual", 4 * one, 0, [&] {
    rms_norm_forward(shape, Type::bf16,
                     {.x = x, .residual = residual, .weight = weight, .h = h, .y = y, .inverse_rms = rms}, {});
  });
  report("RMSNorm input gradient", 3 * one, 0, [&] {
    rms_norm_input_gradient(shape, Type::bf16,
                            {.dy = y, .h = h, .weight = weight, .inverse_rms = rms, .dx = x, .parts = parts}, {});
  });
  report("RMSNorm weight gradient", 4.0 * static_cast<double>(rms_norm_part_count(shape)) * hidden, 0,
         [&] { rms_norm_weight_gradient(hidden, rms_norm_part_count(shape), parts, gradient, {}); });
}

void activations() {
  const SwigluShape shape = {.rows = tokens, .columns = ffn, .stride = 2 * ffn};
  constexpr double one = 2.0 * tokens * ffn;
  auto* const both = static_cast<char*>(halves(2 * tokens * ffn));
  auto* const gradients = static_cast<char*>(halves(2 * tokens * ffn));
  void* const y = halves(tokens * ffn);
  report("SwiGLU forward", 3 * one, 0,
         [&] { swiglu_forward(shape, Type::bf16, {.gate = both, .up = both + 2 * ffn, .y = y}, {}); });
  report("SwiGLU backward", 5 * one, 0, [&] {
    swiglu_backward(shape, Type::bf16,
                    {.dy = y, .gate = both, .up = both + 2 * ffn, .dgate = gradients, .dup = gradients + 2 * ffn}, {});
  });
  const RotaryShape turned = {
      .tokens = tokens, .time = 4096, .heads = 56, .size = 128, .half = 64, .x_stride = hidden, .y_stride = hidden};
  float* const table = floats(4096 * 64);
  report("rotary, in place", 4.0 * tokens * hidden, 0,
         [&] { rotary(turned, Type::bf16, {.x = both, .cosine = table, .sine = table, .y = both}, {}); });
}

void experts() {
  const MoeShape shape = {.tokens = tokens, .hidden = hidden, .top_k = 8, .experts = 256};
  std::vector<std::int32_t> choices(tokens * 8);
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i] = static_cast<std::int32_t>(i * 2654435761U % 256);
  auto* const expert_of = static_cast<std::int32_t*>(memory(tokens * 32));
  PLUMB_CUDA_CHECK(cudaMemcpy(expert_of, choices.data(), tokens * 32, cudaMemcpyHostToDevice));
  auto* const row_of = static_cast<std::int32_t*>(memory(tokens * 32));
  auto* const offsets = static_cast<std::int32_t*>(memory(257 * 4));
  auto* const workspace = static_cast<std::int32_t*>(memory(moe_workspace(shape) * 4));
  void* const x = halves(tokens * hidden);
  void* const rows = halves(8 * tokens * hidden);
  void* const drows = halves(8 * tokens * hidden);
  float* const weight = floats(tokens * 8);
  float* const dweight = floats(tokens * 8);
  constexpr double one = 2.0 * tokens * hidden;
  report("MoE plan", 3 * 4.0 * tokens * 8, 0, [&] {
    moe_plan(shape, {.expert_of = expert_of, .row_of = row_of, .offsets = offsets, .workspace = workspace}, {});
  });
  report("MoE permute", 9 * one, 0,
         [&] { moe_permute(shape, Type::bf16, {.x = x, .row_of = row_of, .rows = rows}, {}); });
  report("MoE unpermute", 9 * one, 0,
         [&] { moe_unpermute(shape, Type::bf16, {.rows = rows, .row_of = row_of, .weight = weight, .y = x}, {}); });
  report("MoE unpermute backward", 17 * one, 0, [&] {
    moe_unpermute_backward(
        shape, Type::bf16,
        {.dy = x, .rows = rows, .row_of = row_of, .weight = weight, .drows = drows, .dweight = dweight}, {});
  });
}

void compression() {
  constexpr std::int64_t count = 100'000'000;
  constexpr int pieces = 8;
  void* const x = halves(count);
  for (const int bits : {8, 4}) {
    const QuantiseShape shape = {.count = count, .block = 128, .bits = bits};
    auto* const values = static_cast<std::uint8_t*>(memory(pieces * quantised_bytes(shape)));
    float* const scales = floats(pieces * quantised_blocks(shape));
    const double small =
        static_cast<double>(quantised_bytes(shape)) + 4.0 * static_cast<double>(quantised_blocks(shape));
    report(bits == 8 ? "quantise to int8" : "quantise to int4", 2.0 * count + small, 0, [&] {
      quantise(shape, Type::bf16, x, {values, scales}, {});
    });
    report(bits == 8 ? "dequantise and add 8 pieces, int8" : "dequantise and add 8 pieces, int4",
           2.0 * count + pieces * small, 0, [&] {
             dequantise_reduce(shape, Type::bf16, {pieces, values, scales}, x, {});
           });
  }
}

void optimizer() {
  constexpr std::int64_t size = 5'000'000;
  std::vector<AdamWTensor> tensors;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back({.size = size,
                       .gradient = floats(size),
                       .weight = floats(size),
                       .first_moment = floats(size),
                       .second_moment = floats(size),
                       .copy = halves(size)});
  }
  report("AdamW, 40 tensors", 30.0 * 40 * size, 0, [&] { adamw({}, Type::bf16, tensors, {}); });
  std::vector<SquaresTensor> gradients;
  for (int i = 0; i < 40; ++i) {
    gradients.push_back({.values = static_cast<const float*>(halves(2 * size)), .size = size});
  }
  const auto words = [](std::int64_t count) { return static_cast<std::uint64_t*>(memory(8 * count)); };
  std::uint64_t* const workspace = words(exact_squares_workspace());
  std::uint64_t* const numbers = words(std::tuple_size_v<ExactSquares::Numbers>);
  report("exact sum of squares, 40 tensors", 4.0 * 40 * size, 0,
         [&] { exact_squares(gradients, workspace, numbers, {}); });
}

void adapters() {
  for (const std::int64_t rank : {16, 64}) {
    const LoraShape shape = {.tokens = tokens, .columns = hidden, .rank = rank, .x_stride = hidden, .z_stride = rank};
    void* const x = halves(tokens * hidden);
    void* const z = halves(tokens * rank);
    void* const factor = halves(hidden * rank);
    float* const parts = floats(lora_part_count(shape) * hidden * rank);
    float* const gradient = floats(hidden * rank);
    constexpr double one = 2.0 * tokens * hidden;
    const double flops = 2.0 * tokens * hidden * static_cast<double>(rank);
    const std::string ending = ", rank " + std::to_string(rank);
    report("LoRA project" + ending, one, flops,
           [&] { lora_project(shape, Type::bf16, {.x = x, .factor = factor, .z = z}, {}); });
    report("LoRA add" + ending, 2 * one, flops,
           [&] { lora_add(shape, Type::bf16, {.z = z, .factor = factor, .x = x}, {}); });
    report("LoRA gradient" + ending, one, flops,
           [&] { lora_gradient(shape, Type::bf16, {.z = z, .x = x, .parts = parts, .gradient = gradient}, {}); });
    void* const dz = halves(tokens * rank);
    float* const workspace = floats(lora_backward_workspace(shape));
    report("LoRA dz and dB" + ending, one, 2 * flops, [&] {
      lora_backward(shape, Type::bf16,
                    {.x = x, .factor = factor, .z = z, .dz = dz, .parts = parts, .workspace = workspace}, {});
    });
    const plumb::bench::LoraLayer layer = plumb::bench::lora_layer({tokens, hidden, ffn}, rank);
    if (!layer.base) continue;
    const double base = seconds_of(layer.base);
    const double adapted = seconds_of(layer.adapted);
    std::printf("a frozen %d x %d projection: F and I %.1f us; with an adapter's F, I and W %.1f us: %.3f times\n",
                static_cast<int>(hidden), static_cast<int>(hidden), base * 1e6, adapted * 1e6, adapted / base);
  }
}

void delta_rule(Type type, const std::string& named) {
  const GatedDeltaShape shape = {.sequences = 32, .time = tokens, .key_dim = 128, .value_dim = 128};
  if (!gated_delta_fits(shape, type)) {
    std::printf("gated delta rule%s: a block of this device has too little shared memory\n", named.c_str());
    return;
  }
  constexpr std::int64_t size = 32 * tokens * 128;
  const double element = static_cast<double>(bytes_of(type));
  const auto elements = [&] { return halves(size * static_cast<std::int64_t>(bytes_of(type)) / 2); };
  void* const q = elements();
  void* const k = elements();
  void* const v = elements();
  void* const out = elements();
  float* const beta = floats(32 * tokens);
  float* const decay = floats(32 * tokens);
  // Of a chunk, without the repetition for each block of values: 2 · 64 · (64 (2 dk + 2 dv) + 3 dk dv).
  constexpr double flops = 32.0 * tokens / 64 * 2 * 64 * (64.0 * 512 + 3.0 * 128 * 128);
  report("gated delta rule forward" + named, 4 * element * size, flops, [&] {
    gated_delta_forward(shape, type,
                        {.query = q, .key = k, .value = v, .beta = beta, .log_decay = decay, .output = out}, {});
  });
  void* const dq = elements();
  void* const dk = elements();
  void* const dv = elements();
  float* const dbeta = floats(32 * tokens);
  float* const ddecay = floats(32 * tokens);
  void* const workspace = memory(gated_delta_workspace(shape, type));
  // At least: q, k, v and dO are read, three gradients written. Twice the forward pass's products, and those again.
  report("gated delta rule backward" + named, 7 * element * size, 3 * flops, [&] {
    gated_delta_backward(shape, type,
                         {.query = q,
                          .key = k,
                          .value = v,
                          .beta = beta,
                          .log_decay = decay,
                          .doutput = out,
                          .dquery = dq,
                          .dkey = dk,
                          .dvalue = dv,
                          .dbeta = dbeta,
                          .dlog_decay = ddecay,
                          .workspace = workspace},
                         {});
  });
}

}  // namespace

int main() {
  if (cuda_device_count() == 0) {
    std::puts("bench_kernels: there is no CUDA device here, or no driver for it.");
    return 0;
  }
  try {
    measure_copy();
    norms();
    activations();
    experts();
    compression();
    optimizer();
    adapters();
    delta_rule(Type::bf16, "");
    delta_rule(Type::fp32, ", fp32");
  } catch (const CudaError& error) {
    std::fprintf(stderr, "bench_kernels: %s\n", error.what());
    return 3;
  }
}
