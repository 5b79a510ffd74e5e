#include "exec/stage/primitives/weight_optimizer.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

std::span<float> values(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

TEST_CASE("AdamW in LibTorch's operations is AdamW by plain loops, but for the rounding") {
  const AdamW settings{.rate = 0.02, .decay = 0.1};
  at::Generator generator = at::detail::createCPUGenerator(5);
  const at::Tensor start = at::randn({1000}, generator);
  const at::Tensor by_loops = start.clone();
  const at::Tensor by_tensors = start.clone();
  const at::Tensor zero = at::zeros_like(start);
  const at::Tensor moments[] = {zero.clone(), zero.clone(), zero.clone(), zero.clone()};
  for (int step = 1; step <= 4; ++step) {
    const at::Tensor gradient = at::randn({1000}, generator);
    adamw_step(settings, step, values(by_loops), values(gradient), values(moments[0]), values(moments[1]));
    adamw_step(settings, step, by_tensors, gradient, moments[2], moments[3]);
  }
  CHECK((by_loops - by_tensors).abs().max().item<double>() < 1e-6);
  CHECK((by_loops - start).abs().mean().item<double>() > 0.01);
}
