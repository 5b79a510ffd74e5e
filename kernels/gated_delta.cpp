#include "kernels/gated_delta.hpp"

#include <cmath>
#include <vector>

namespace plumb::kernels {

void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output) {
  const std::int64_t keys = shape.key_dim;
  const std::int64_t values = shape.value_dim;
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    std::vector<double> state(static_cast<std::size_t>(keys * values), 0.0);
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

}  // namespace plumb::kernels
