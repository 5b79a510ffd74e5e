#include "kernels/moe.hpp"

#include <algorithm>

namespace plumb::kernels {

void moe_plan_reference(const MoeShape& shape, const MoePlan& a) {
  std::int32_t row = 0;
  for (std::int32_t expert = 0; expert < shape.experts; ++expert) {
    a.offsets[expert] = row;
    for (std::int64_t i = 0; i < shape.tokens * shape.top_k; ++i) {
      if (a.expert_of[i] == expert) a.row_of[i] = row++;
    }
  }
  a.offsets[shape.experts] = row;
  for (std::int64_t i = 0; i < shape.tokens * shape.top_k; ++i) {
    if (a.expert_of[i] < 0) a.row_of[i] = -1;
  }
}

void moe_permute_reference(const MoeShape& shape, const MoePermute<double>& a) {
  for (std::int64_t i = 0; i < shape.tokens * shape.top_k; ++i) {
    if (a.row_of[i] < 0) continue;
    const double* const x = a.x + i / shape.top_k * shape.hidden;
    std::copy(x, x + shape.hidden, a.rows + a.row_of[i] * shape.hidden);
  }
}

void moe_unpermute_reference(const MoeShape& shape, const MoeUnpermute<double>& a) {
  std::fill(a.y, a.y + shape.tokens * shape.hidden, 0.0);
  for (std::int64_t i = 0; i < shape.tokens * shape.top_k; ++i) {
    if (a.row_of[i] < 0) continue;
    const double weight = a.weight != nullptr ? a.weight[i] : 1;
    double* const y = a.y + i / shape.top_k * shape.hidden;
    const double* const row = a.rows + a.row_of[i] * shape.hidden;
    for (std::int64_t h = 0; h < shape.hidden; ++h) y[h] += weight * row[h];
  }
}

void moe_unpermute_backward_reference(const MoeShape& shape, const MoeUnpermuteBackward<double>& a) {
  for (std::int64_t i = 0; i < shape.tokens * shape.top_k; ++i) {
    a.dweight[i] = 0;
    if (a.row_of[i] < 0) continue;
    const double* const dy = a.dy + i / shape.top_k * shape.hidden;
    const double* const row = a.rows + a.row_of[i] * shape.hidden;
    double* const drow = a.drows + a.row_of[i] * shape.hidden;
    for (std::int64_t h = 0; h < shape.hidden; ++h) {
      a.dweight[i] += dy[h] * row[h];
      drow[h] = a.weight[i] * dy[h];
    }
  }
}

}  // namespace plumb::kernels
