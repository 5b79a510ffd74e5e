// LibTorch's make of the stages' functions: in place where that changes no bit, so that little stands beside each
// other.
#include <ATen/ATen.h>

#include "exec/host/memory.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "tests/catch.hpp"

#include <functional>
#include <thread>

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr std::int64_t token_count = 96;
constexpr std::int64_t width = 64;

at::Tensor drawn(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::TensorOptions().dtype(at::kFloat)).to(type);
}

// The most that `work` has beside what is there before it.
std::int64_t peak_of(const std::function<void()>& work) {
  constexpr int account = 911;  // nobody else's
  std::int64_t most = 0;
  std::thread([&] {
    track_memory_of_thread(account);
    reset_peak_memory(account);
    const Bytes before = current_memory(account);  // what was made here and freed where nothing counts
    work();
    most = (peak_memory(account) - before).value;
  }).join();
  return most;
}

// Each step as a value of its own.
NormBackward norm_gradients_by_steps(const NormForward& made, const at::Tensor& weight, const at::Tensor& dy,
                                     const at::Tensor& dh) {
  const at::ScalarType type = made.scale.scalar_type();
  const at::Tensor wide_dy = dy.to(type);
  const at::Tensor normal = made.h.to(type) * made.scale;
  const at::Tensor product = wide_dy * normal;
  const at::Tensor mean = (at::matmul(product, weight.to(type)) / static_cast<double>(weight.numel())).unsqueeze(-1);
  const at::Tensor dx = ((wide_dy * weight.to(type) - normal * mean) * made.scale).to(made.h.scalar_type());
  return {.dx = dh.defined() ? dx + dh : dx, .weight_parts = rows(product).sum(0)};
}

}  // namespace

TEST_CASE("gradients of RMSNorm in place have the bits of those made step by step, and change no argument") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const bool turned = GENERATE(false, true);  // a view that is not contiguous
  const bool beside = GENERATE(false, true);
  at::manual_seed(3);
  const Primitives& aten = aten_primitives();
  const at::Tensor x =
      turned ? drawn({token_count, 2, width}, type).transpose(0, 1) : drawn({2, token_count, width}, type);
  const at::Tensor weight = drawn({width}, type);
  const at::Tensor dy = drawn(x.sizes(), type);
  const at::Tensor dh = beside ? drawn(x.sizes(), type) : at::Tensor();
  const NormForward made = aten.rms_norm(x, {}, weight, 1e-6);
  const std::vector<at::Tensor> arguments{made.h, made.scale, weight, dy};
  std::vector<at::Tensor> before;
  for (const at::Tensor& argument : arguments) before.push_back(argument.clone());
  const NormBackward expected = norm_gradients_by_steps(made, weight, dy, dh);
  const NormBackward gradients = aten.rms_norm_backward(made, weight, dy, dh, true);
  CHECK(at::equal(gradients.dx, expected.dx));
  CHECK(at::equal(gradients.weight_parts, expected.weight_parts));
  for (std::size_t i = 0; i < arguments.size(); ++i) CHECK(at::equal(arguments[i], before[i]));
}

// Of 16-bit values three in fp32; of fp32 values, which are wide enough, two beside the arguments.
TEST_CASE("gradients of RMSNorm hold no more wide values at a time than are counted") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor x = drawn({token_count, width}, type);
  const at::Tensor weight = drawn({width}, type);
  const at::Tensor dy = drawn({token_count, width}, type);
  const NormForward made = aten_primitives().rms_norm(x, {}, weight, 1e-6);
  const std::int64_t small = (token_count + 3 * width) * 4;
  const std::int64_t wide = 4 * token_count * width;
  const std::int64_t peak = peak_of([&] { (void)aten_primitives().rms_norm_backward(made, weight, dy, {}, true); });
  const std::int64_t values = type == at::kFloat ? 2 : 3;
  CHECK(peak >= values * wide);
  CHECK(peak <= values * wide + 2 * small);
}

TEST_CASE("gradients of SwiGLU have the bits of those made step by step, and need one value beside them") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor gate = drawn({token_count, width}, type);
  const at::Tensor up = drawn({token_count, width}, type);
  const at::Tensor dy = drawn({token_count, width}, type);
  std::pair<at::Tensor, at::Tensor> made;
  const std::int64_t peak = peak_of([&] { made = aten_primitives().swiglu_backward(dy, gate, up); });
  CHECK(at::equal(made.first, at::silu_backward(dy * up, gate)));
  CHECK(at::equal(made.second, at::silu(gate) * dy));
  CHECK(peak == 2 * static_cast<std::int64_t>(dy.nbytes()));
}

// The logits, and once their logarithms in fp32: what the head's F is counted to have.
TEST_CASE("cross entropy of 16-bit logits has the bits of LibTorch's, and no second copy in fp32") {
  constexpr std::int64_t vocabulary = 512;
  const at::Tensor logits = drawn({token_count, vocabulary}, at::kBFloat16);
  const at::Tensor targets = at::randint(vocabulary, {token_count}, at::TensorOptions().dtype(at::kLong));
  at::Tensor loss;
  const std::int64_t peak = peak_of([&] { loss = cross_entropy(logits, targets); });
  const at::Tensor expected = at::log_softmax(logits, -1, at::kFloat).gather(1, targets.unsqueeze(1)).mean().neg();
  CHECK(at::equal(loss, expected));
  CHECK(peak >= 4 * logits.numel());
  CHECK(peak < 5 * logits.numel());
}
