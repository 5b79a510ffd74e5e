// What it costs to have W as an action of its own: I and then W of stages against one plain backward of the same
// layers.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "exec/stage/modules/block.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace {

using namespace plumb;
using namespace plumb::exec;

constexpr std::int64_t hidden = 256;
constexpr std::int64_t width = 768;
constexpr std::int64_t heads = 4;
constexpr std::int64_t sequence = 256;
constexpr std::int64_t microbatch = 2;
constexpr int layers = 4;

Model llama() {
  const SoftmaxAttention attention{
      .heads = heads, .kv_heads = heads, .head_dim = hidden / heads, .value_dim = hidden / heads};
  const Layer layer{.mixer = attention, .mlp = DenseMlp{.width = width}};
  return {.name = "llama",
          .vocabulary = 256,
          .hidden = hidden,
          .layers = std::vector<Layer>(layers, layer),
          .positions = Positions::none};
}

// The same layers in LibTorch's own differentiable operations; weights are leaves that accumulate their gradients.
class PlainStage {
 public:
  PlainStage() {
    const Model model = llama();
    for (std::size_t index = 0; index < model.layers.size(); ++index) {
      for (const Parameter& parameter : layer_parameters(model, index)) {
        weights_.push_back(initial_value(parameter, 1).requires_grad_());
      }
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    input_ = input.detach().requires_grad_();
    at::Tensor x = input_;
    auto weight = weights_.begin();
    const auto next = [&]() -> const at::Tensor& { return *weight++; };
    const auto norm = [&](const at::Tensor& y) { return at::rms_norm(y, {hidden}, next(), 1e-6); };
    const auto split = [](const at::Tensor& y) {
      return y.view({microbatch, sequence, heads, hidden / heads}).transpose(1, 2);
    };
    for (int layer = 0; layer < layers; ++layer) {
      const at::Tensor y = norm(x);
      const at::Tensor q = split(at::linear(y, next()));
      const at::Tensor k = split(at::linear(y, next()));
      const at::Tensor v = split(at::linear(y, next()));
      const at::Tensor attended = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
      x = x + at::linear(attended.transpose(1, 2).reshape(x.sizes()), next());
      const at::Tensor z = norm(x);
      const at::Tensor gate = at::silu(at::linear(z, next()));
      const at::Tensor up = at::linear(z, next());
      x = x + at::linear(gate * up, next());
    }
    return x;
  }

 private:
  std::vector<at::Tensor> weights_;
  at::Tensor input_;
};

// Of this thread: a busy machine lengthens the wall time of whichever of the two it hits.
double thread_milliseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Alternates both in one loop, so that the machine's mood is shared.
void input_and_weight_gradient(benchmark::State& state) {
  at::set_num_threads(1);
  const Model model = llama();
  std::vector<std::unique_ptr<Block>> blocks;
  for (int block = 1; block <= layers; ++block) {
    blocks.push_back(std::make_unique<Block>(model, block, Training{.sequence = sequence, .seed = 1}, Numerics{}));
  }
  PlainStage plain;
  const at::Tensor x = at::randn({microbatch, sequence, hidden});
  const at::Tensor gradient = at::randn({microbatch, sequence, hidden});
  std::vector<double> plain_times;
  std::vector<double> split_times;
  for (auto _ : state) {
    at::Tensor y = plain.forward(x);
    double start = thread_milliseconds();
    y.backward(gradient);
    plain_times.push_back(thread_milliseconds() - start);

    y = x;
    for (const auto& block : blocks) {
      y = block->forward(y, {}, true);
    }
    start = thread_milliseconds();
    at::Tensor dy = gradient;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      dy = (*block)->input_gradient(0, std::move(dy));
    }
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      (*block)->weight_gradient(0);
    }
    split_times.push_back(thread_milliseconds() - start);
  }
  std::vector<double> ratios;
  for (std::size_t index = 0; index < plain_times.size(); ++index) {
    ratios.push_back(split_times[index] / plain_times[index]);
  }
  state.counters["plain_ms"] = median(plain_times);
  state.counters["split_ms"] = median(split_times);
  state.counters["ratio"] = median(ratios);
}

BENCHMARK(input_and_weight_gradient)->Iterations(60)->Unit(benchmark::kMillisecond);

}  // namespace
