#include "exec/stage/primitives/optimizer.hpp"

#include <cmath>
#include <cstddef>

namespace plumb::exec {

double clipping_scale(double norm, double limit) {
  constexpr double least = 1e-6;
  const double scale = limit / (norm + least);
  return scale > 1 ? 1 : scale;
}

void sgd_step(std::span<float> weight, std::span<const float> gradient, double rate) {
  const auto step = static_cast<float>(rate);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] -= step * gradient[i];
  }
}

void adamw_step(const AdamW& settings, std::int64_t step, std::span<float> weight, std::span<const float> gradient,
                std::span<float> first_moment, std::span<float> second_moment) {
  const auto count = static_cast<double>(step);
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto rest1 = static_cast<float>(1 - settings.beta1);
  const auto rest2 = static_cast<float>(1 - settings.beta2);
  const auto keep = static_cast<float>(1 - settings.rate * settings.decay);
  const auto rate = static_cast<float>(settings.rate / (1 - std::pow(settings.beta1, count)));
  const auto root = static_cast<float>(std::sqrt(1 - std::pow(settings.beta2, count)));
  const auto epsilon = static_cast<float>(settings.epsilon);
  const std::size_t size = weight.size();
  float* const w = weight.data();
  const float* const g = gradient.data();
  float* const m = first_moment.data();
  float* const v = second_moment.data();
  for (std::size_t i = 0; i < size; ++i) {
    m[i] = beta1 * m[i] + rest1 * g[i];
    v[i] = beta2 * v[i] + rest2 * (g[i] * g[i]);
    w[i] = keep * w[i] - rate * (m[i] / (std::sqrt(v[i]) / root + epsilon));
  }
}

}  // namespace plumb::exec
