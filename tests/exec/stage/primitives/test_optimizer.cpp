// Optimizers on given gradients: bit by bit against a scalar implementation, closely against torch.optim's formulas.
#include "exec/stage/primitives/optimizer.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

std::vector<float> normal(std::size_t count, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(generator);
  return values;
}

// Each operation rounds to fp32: `volatile` keeps the compiler from fusing or widening.
float rounded(float value) {
  volatile float stored = value;
  return stored;
}

struct ScalarAdamW {
  float weight;
  float first = 0;
  float second = 0;

  void step(int number, float gradient, double rate) {
    first = rounded(rounded(0.9F * first) + rounded(static_cast<float>(1 - 0.9) * gradient));
    second = rounded(rounded(0.999F * second) + rounded(static_cast<float>(1 - 0.999) * rounded(gradient * gradient)));
    const auto scaled_rate = static_cast<float>(rate / (1 - std::pow(0.9, number)));
    const auto correction = static_cast<float>(std::sqrt(1 - std::pow(0.999, number)));
    const float root = rounded(rounded(std::sqrt(second)) / correction);
    const float change = rounded(scaled_rate * rounded(first / rounded(root + 1e-8F)));
    weight = rounded(rounded(static_cast<float>(1 - rate * 0.01) * weight) - change);
  }
};

// arXiv 1711.05101, algorithm 2, in fp64.
struct ExactAdamW {
  double weight;
  double first = 0;
  double second = 0;

  void step(int number, double gradient, double rate) {
    first = 0.9 * first + 0.1 * gradient;
    second = 0.999 * second + 0.001 * gradient * gradient;
    const double mean = first / (1 - std::pow(0.9, number));
    const double variance = second / (1 - std::pow(0.999, number));
    weight -= rate * 0.01 * weight;
    weight -= rate * mean / (std::sqrt(variance) + 1e-8);
  }
};

}  // namespace

TEST_CASE("AdamW is the scalar algorithm bit by bit") {
  constexpr std::size_t count = 1003;  // no multiple of a vector's width
  const double rate = 3e-3;
  std::vector<float> weight = normal(count, 1, 0.02F);
  std::vector<float> first(count, 0.0F);
  std::vector<float> second(count, 0.0F);
  std::vector<ScalarAdamW> scalar;
  std::vector<ExactAdamW> exact;
  for (const float value : weight) {
    scalar.push_back({.weight = value});
    exact.push_back({.weight = value});
  }
  for (int step = 1; step <= 5; ++step) {
    const std::vector<float> gradient = normal(count, 100U + static_cast<unsigned>(step), 1e-3F);
    adamw_step({.rate = rate}, step, weight, gradient, first, second);
    for (std::size_t i = 0; i < count; ++i) {
      scalar[i].step(step, gradient[i], rate);
      exact[i].step(step, gradient[i], rate);
    }
  }
  std::size_t different = 0;
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    different += weight[i] != scalar[i].weight || first[i] != scalar[i].first || second[i] != scalar[i].second;
    worst = std::max(worst, std::abs(static_cast<double>(weight[i]) - exact[i].weight));
  }
  CHECK(different == 0);
  CHECK(worst < 1e-7);  // of weights near 0.02 that have moved by 0.015
}

TEST_CASE("SGD subtracts rate times gradient") {
  std::vector<float> weight = normal(257, 1, 0.02F);
  const std::vector<float> before = weight;
  const std::vector<float> gradient = normal(257, 2, 1.0F);
  sgd_step(weight, gradient, 0.125);
  std::size_t different = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) different += weight[i] != rounded(before[i] - 0.125F * gradient[i]);
  CHECK(different == 0);
}
