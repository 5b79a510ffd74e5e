#include "kernels/gated_delta.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace plumb::kernels {
namespace {

std::vector<double> first_state(const GatedDeltaShape& shape, const GatedDeltaInput& input, std::int64_t sequence) {
  const auto size = static_cast<std::size_t>(shape.key_dim * shape.value_dim);
  if (input.first_state == nullptr) return std::vector<double>(size, 0.0);
  const double* const from = input.first_state + sequence * shape.key_dim * shape.value_dim;
  return std::vector<double>(from, from + size);
}

}  // namespace

void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output) {
  const std::int64_t keys = shape.key_dim;
  const std::int64_t values = shape.value_dim;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    std::vector<double> state = first_state(shape, input, sequence);
    for (std::int64_t time = 0; time < shape.time; ++time) {
      const std::int64_t step = sequence * shape.time + time;
      const double* const query = input.query + step * keys;
      const double* const key = input.key + step * keys;
      const double decay = std::exp(input.log_decay[step]);
      for (std::int64_t column = 0; column < values; ++column) {
        double* const cell = state.data() + column;  // S[row, column] stands at row · values
        double recalled = 0;
        for (std::int64_t row = 0; row < keys; ++row) {
          cell[row * values] *= decay;
          recalled += cell[row * values] * key[row];
        }
        const double write = input.beta[step] * (input.value[step * values + column] - recalled);
        double read = 0;
        for (std::int64_t row = 0; row < keys; ++row) {
          cell[row * values] += key[row] * write;
          read += cell[row * values] * query[row];
        }
        output[step * values + column] = read;
      }
    }
  }
}

namespace {

using Numbers = std::vector<double>;

// What a step of one sequence reads and gives gradients to.
struct Step {
  std::int64_t at = 0;  // of beta and log_decay
  const double* query = nullptr;
  const double* key = nullptr;
  const double* value = nullptr;
  const double* output_gradient = nullptr;
};

Step step_of(const GatedDeltaShape& shape, const GatedDeltaInput& input, const GatedDeltaGradients& gradients,
             std::int64_t at) {
  return {.at = at,
          .query = input.query + at * shape.key_dim,
          .key = input.key + at * shape.key_dim,
          .value = input.value + at * shape.value_dim,
          .output_gradient = gradients.output + at * shape.value_dim};
}

// S before each step, and after the last.
std::vector<Numbers> states_of(const GatedDeltaShape& shape, const GatedDeltaInput& input,
                               const GatedDeltaGradients& gradients, std::int64_t sequence) {
  std::vector<Numbers> states{first_state(shape, input, sequence)};
  for (std::int64_t time = 0; time < shape.time; ++time) {
    const Step step = step_of(shape, input, gradients, sequence * shape.time + time);
    Numbers next = states.back();
    for (double& x : next) x *= std::exp(input.log_decay[step.at]);
    for (std::int64_t column = 0; column < shape.value_dim; ++column) {
      double recalled = 0;
      for (std::int64_t row = 0; row < shape.key_dim; ++row) {
        recalled += next[static_cast<std::size_t>(row * shape.value_dim + column)] * step.key[row];
      }
      const double write = input.beta[step.at] * (step.value[column] - recalled);
      for (std::int64_t row = 0; row < shape.key_dim; ++row) {
        next[static_cast<std::size_t>(row * shape.value_dim + column)] += step.key[row] * write;
      }
    }
    states.push_back(std::move(next));
  }
  return states;
}

// With S' = exp(log_decay)·S, u = beta (v − S'ᵀk), S⁺ = S' + k uᵀ, o = S⁺ᵀq: from dS⁺, in place, to dS.
void step_back(const GatedDeltaShape& shape, const GatedDeltaInput& input, const Step& step, const Numbers& before,
               const GatedDeltaGradients& to, Numbers& gradient) {
  const double decay = std::exp(input.log_decay[step.at]);
  const double beta = input.beta[step.at];
  double* const dquery = to.query + step.at * shape.key_dim;
  double* const dkey = to.key + step.at * shape.key_dim;
  std::fill(dquery, dquery + shape.key_dim, 0.0);
  std::fill(dkey, dkey + shape.key_dim, 0.0);
  double dbeta = 0;
  double dlog_decay = 0;
  for (std::int64_t column = 0; column < shape.value_dim; ++column) {
    const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row * shape.value_dim + column); };
    double recalled = 0;
    double dwrite = 0;
    for (std::int64_t row = 0; row < shape.key_dim; ++row) {
      recalled += decay * before[at(row)] * step.key[row];
      gradient[at(row)] += step.query[row] * step.output_gradient[column];
      dwrite += gradient[at(row)] * step.key[row];
    }
    const double write = beta * (step.value[column] - recalled);
    dbeta += dwrite * (step.value[column] - recalled);
    to.value[step.at * shape.value_dim + column] = beta * dwrite;
    for (std::int64_t row = 0; row < shape.key_dim; ++row) {
      dquery[row] += (decay * before[at(row)] + step.key[row] * write) * step.output_gradient[column];
      dkey[row] += gradient[at(row)] * write - beta * dwrite * decay * before[at(row)];
      gradient[at(row)] = decay * (gradient[at(row)] - step.key[row] * beta * dwrite);
      dlog_decay += gradient[at(row)] * before[at(row)];
    }
  }
  to.beta[step.at] = dbeta;
  to.log_decay[step.at] = dlog_decay;
}

}  // namespace

void gated_delta_backward_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input,
                                    const GatedDeltaGradients& gradients) {
  const std::int64_t size = shape.key_dim * shape.value_dim;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const std::vector<Numbers> states = states_of(shape, input, gradients, sequence);
    Numbers gradient(static_cast<std::size_t>(size), 0.0);
    if (gradients.last_state != nullptr) {
      std::copy_n(gradients.last_state + sequence * size, size, gradient.begin());
    }
    for (std::int64_t time = shape.time; time-- > 0;) {
      const Step step = step_of(shape, input, gradients, sequence * shape.time + time);
      step_back(shape, input, step, states[static_cast<std::size_t>(time)], gradients, gradient);
    }
    if (gradients.first_state != nullptr) {
      std::copy(gradient.begin(), gradient.end(), gradients.first_state + sequence * size);
    }
  }
}

}  // namespace plumb::kernels
