#include "kernels/rms_norm.hpp"

#include <cmath>

namespace plumb::kernels {

void rms_norm_forward_reference(const RmsNormShape& shape, const RmsNormForward<double>& a) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t first = row * shape.columns;
    double squares = 0;
    for (std::int64_t i = first; i < first + shape.columns; ++i) {
      const double h = a.residual != nullptr ? a.x[i] + a.residual[i] : a.x[i];
      if (a.h != nullptr) a.h[i] = h;
      squares += h * h;
    }
    const double* const h = a.h != nullptr ? a.h : a.x;
    a.inverse_rms[row] = 1 / std::sqrt(squares / static_cast<double>(shape.columns) + shape.epsilon);
    for (std::int64_t i = 0; i < shape.columns; ++i) a.y[first + i] = h[first + i] * a.inverse_rms[row] * a.weight[i];
  }
}

void rms_norm_input_gradient_reference(const RmsNormShape& shape, const RmsNormInputGradient<double>& a) {
  for (std::int64_t i = 0; i < shape.columns; ++i) a.parts[i] = 0;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t first = row * shape.columns;
    const double inverse = a.inverse_rms[row];
    double along = 0;
    for (std::int64_t i = 0; i < shape.columns; ++i) along += a.dy[first + i] * a.weight[i] * a.h[first + i];
    const double share = inverse * inverse * along / static_cast<double>(shape.columns);
    for (std::int64_t i = 0; i < shape.columns; ++i) {
      const double beside = a.dh != nullptr ? a.dh[first + i] : 0;
      a.parts[i] += a.dy[first + i] * a.h[first + i] * inverse;
      a.dx[first + i] = inverse * (a.dy[first + i] * a.weight[i] - a.h[first + i] * share) + beside;
    }
  }
}

}  // namespace plumb::kernels
