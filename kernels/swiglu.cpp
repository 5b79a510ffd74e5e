#include "kernels/swiglu.hpp"

#include <cmath>

namespace plumb::kernels {

void swiglu_forward_reference(const SwigluShape& shape, const SwigluForward<double>& a) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const std::int64_t at = row * shape.stride + column;
      a.y[row * shape.columns + column] = a.gate[at] / (1 + std::exp(-a.gate[at])) * a.up[at];
    }
  }
}

void swiglu_backward_reference(const SwigluShape& shape, const SwigluBackward<double>& a) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const std::int64_t at = row * shape.stride + column;
      const double dy = a.dy[row * shape.columns + column];
      const double gate = a.gate[at];
      const double up = a.up[at];
      const double s = 1 / (1 + std::exp(-gate));
      a.dgate[at] = dy * up * s * (1 + gate * (1 - s));
      a.dup[at] = dy * gate * s;
    }
  }
}

}  // namespace plumb::kernels
