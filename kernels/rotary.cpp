#include "kernels/rotary.hpp"

namespace plumb::kernels {

void rotary_reference(const RotaryShape& shape, const Rotary<double>& a) {
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const double* const x = a.x + token * shape.x_stride + head * shape.size;
      double* const y = a.y + token * shape.y_stride + head * shape.size;
      for (std::int64_t i = 0; i < shape.half; ++i) {
        const std::int64_t first = shape.interleaved ? 2 * i : i;
        const std::int64_t second = shape.interleaved ? first + 1 : first + shape.half;
        const std::int64_t row = token % shape.time * shape.half;
        const double cosine = a.cosine[row + i];
        const double sine = a.backwards ? -a.sine[row + i] : a.sine[row + i];
        const double left = x[first];
        const double right = x[second];
        y[first] = left * cosine - right * sine;
        y[second] = right * cosine + left * sine;
      }
      for (std::int64_t i = 2 * shape.half; i < shape.size; ++i) y[i] = x[i];
    }
  }
}

}  // namespace plumb::kernels
