#include "kernels/gated_delta/gated_delta.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace plumb::kernels {
namespace {

using Numbers = std::vector<double>;

Numbers first_state(const GatedDeltaShape& shape, const GatedDeltaInput& input, std::int64_t sequence) {
  const auto size = static_cast<std::size_t>(shape.key_dim * shape.value_dim);
  if (input.first_state == nullptr) return Numbers(size, 0.0);
  const double* const from = input.first_state + sequence * shape.key_dim * shape.value_dim;
  return Numbers(from, from + size);
}

// To the state after step `at`, which counts on over the sequences.
void step_forward(const GatedDeltaShape& shape, const GatedDeltaInput& input, std::int64_t at, Numbers& state) {
  const std::int64_t values = shape.value_dim;
  const double* const key = input.key + at * shape.key_dim;
  const double decay = std::exp(input.log_decay[at]);
  for (std::int64_t column = 0; column < values; ++column) {
    double* const cell = state.data() + column;  // S[row, column] stands at row · values
    double recalled = 0;
    for (std::int64_t row = 0; row < shape.key_dim; ++row) {
      cell[row * values] *= decay;
      recalled += cell[row * values] * key[row];
    }
    const double write = input.beta[at] * (input.value[at * values + column] - recalled);
    for (std::int64_t row = 0; row < shape.key_dim; ++row) cell[row * values] += key[row] * write;
  }
}

}  // namespace

void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output) {
  const std::int64_t values = shape.value_dim;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    Numbers state = first_state(shape, input, sequence);
    for (std::int64_t at = sequence * shape.time; at < (sequence + 1) * shape.time; ++at) {
      step_forward(shape, input, at, state);
      const double* const query = input.query + at * shape.key_dim;
      for (std::int64_t column = 0; column < values; ++column) {
        double read = 0;
        for (std::int64_t row = 0; row < shape.key_dim; ++row) {
          read += state[static_cast<std::size_t>(row * values + column)] * query[row];
        }
        output[at * values + column] = read;
      }
    }
  }
}

namespace {

// S before each step, and after the last.
std::vector<Numbers> states_of(const GatedDeltaShape& shape, const GatedDeltaInput& input, std::int64_t sequence) {
  std::vector<Numbers> states{first_state(shape, input, sequence)};
  for (std::int64_t time = 0; time < shape.time; ++time) {
    Numbers next = states.back();
    step_forward(shape, input, sequence * shape.time + time, next);
    states.push_back(std::move(next));
  }
  return states;
}

// With S' = exp(log_decay)·S, u = beta (v − S'ᵀk), S⁺ = S' + k uᵀ, o = S⁺ᵀq: from dS⁺, in place, to dS.
void step_back(const GatedDeltaShape& shape, const GatedDeltaInput& input, std::int64_t step, const Numbers& before,
               const GatedDeltaGradients& to, Numbers& gradient) {
  const double* const query = input.query + step * shape.key_dim;
  const double* const key = input.key + step * shape.key_dim;
  const double* const value = input.value + step * shape.value_dim;
  const double* const doutput = to.output + step * shape.value_dim;
  const double decay = std::exp(input.log_decay[step]);
  const double beta = input.beta[step];
  double* const dquery = to.query + step * shape.key_dim;
  double* const dkey = to.key + step * shape.key_dim;
  std::fill(dquery, dquery + shape.key_dim, 0.0);
  std::fill(dkey, dkey + shape.key_dim, 0.0);
  double dbeta = 0;
  double dlog_decay = 0;
  for (std::int64_t column = 0; column < shape.value_dim; ++column) {
    const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row * shape.value_dim + column); };
    double recalled = 0;
    double dwrite = 0;
    for (std::int64_t row = 0; row < shape.key_dim; ++row) {
      recalled += decay * before[at(row)] * key[row];
      gradient[at(row)] += query[row] * doutput[column];
      dwrite += gradient[at(row)] * key[row];
    }
    const double write = beta * (value[column] - recalled);
    dbeta += dwrite * (value[column] - recalled);
    to.value[step * shape.value_dim + column] = beta * dwrite;
    for (std::int64_t row = 0; row < shape.key_dim; ++row) {
      dquery[row] += (decay * before[at(row)] + key[row] * write) * doutput[column];
      dkey[row] += gradient[at(row)] * write - beta * dwrite * decay * before[at(row)];
      gradient[at(row)] = decay * (gradient[at(row)] - key[row] * beta * dwrite);
      dlog_decay += gradient[at(row)] * before[at(row)];
    }
  }
  to.beta[step] = dbeta;
  to.log_decay[step] = dlog_decay;
}

}  // namespace

void gated_delta_backward_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input,
                                    const GatedDeltaGradients& gradients) {
  const std::int64_t size = shape.key_dim * shape.value_dim;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const std::vector<Numbers> states = states_of(shape, input, sequence);
    Numbers gradient(static_cast<std::size_t>(size), 0.0);
    if (gradients.last_state != nullptr) {
      std::copy_n(gradients.last_state + sequence * size, size, gradient.begin());
    }
    for (std::int64_t time = shape.time; time-- > 0;) {
      step_back(shape, input, sequence * shape.time + time, states[static_cast<std::size_t>(time)], gradients,
                gradient);
    }
    if (gradients.first_state != nullptr) {
      std::copy(gradient.begin(), gradient.end(), gradients.first_state + sequence * size);
    }
  }
}

}  // namespace plumb::kernels
