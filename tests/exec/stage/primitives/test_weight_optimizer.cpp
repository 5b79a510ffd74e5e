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

// Elements are updated one by one: the parts of all ranks together are what one rank makes of all.
TEST_CASE("parts of a weight that ranks update each have the bits of the whole update") {
  for (const plumb::Optimizer optimizer : {plumb::Optimizer::sgd, plumb::Optimizer::adam}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const plumb::Training training{.optimizer = optimizer, .learning_rate = 0.02};
      const auto weights_of = [&] {
        at::Generator generator = at::detail::createCPUGenerator(7);
        std::vector<WeightPtr> weights;
        for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{13, 7}, {5}, {2}}) {
          const auto weight = c10::make_intrusive<Weight>();
          weight->value = at::randn(shape, generator).to(type);
          weight->gradient = at::zeros(shape);
          weights.push_back(weight);
        }
        return weights;
      };
      constexpr int ranks = 3;  // more than the last weight has elements
      std::vector<std::vector<WeightPtr>> replicas;
      std::vector<WeightOptimizer> optimizers;
      for (int rank = 0; rank <= ranks; ++rank) {  // the last one updates all
        replicas.push_back(weights_of());
        const StateShard shard = rank < ranks ? StateShard{.index = rank, .count = ranks} : StateShard{};
        optimizers.emplace_back(replicas.back(), training, shard);
      }
      at::Generator generator = at::detail::createCPUGenerator(8);
      for (int step = 0; step < 10; ++step) {
        for (std::size_t w = 0; w < replicas.front().size(); ++w) {
          const at::Tensor gradient = at::randn(replicas.front()[w]->value.sizes(), generator);
          for (auto& weights : replicas) weights[w]->gradient.copy_(gradient);
        }
        for (WeightOptimizer& each : optimizers) each.step();
        for (std::size_t w = 0; w < replicas.front().size(); ++w) {
          std::vector<at::Tensor> parts;
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            parts.push_back(at::tensor_split(replicas[rank][w]->value.view(-1), ranks)[static_cast<std::size_t>(rank)]);
          }
          const at::Tensor gathered = at::cat(parts);
          REQUIRE(at::equal(gathered, replicas.back()[w]->value.view(-1)));
          for (std::size_t rank = 0; rank < ranks; ++rank) replicas[rank][w]->value.view(-1).copy_(gathered);
        }
      }
    }
  }
}
