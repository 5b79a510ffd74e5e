// The gated delta rule (Gated DeltaNet, arXiv 2412.06464, equation 10) on plain arrays: the recurrence that kernels and
// chunked forms are tested against.
#pragma once

#include <cstdint>

namespace plumb::kernels {

struct GatedDeltaShape {
  std::int64_t sequences = 0;  // batch · heads: independent of each other
  std::int64_t time = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

// Contiguous; query and key [sequences, time, key_dim], value [sequences, time, value_dim], beta and log_decay
// [sequences, time].
struct GatedDeltaInput {
  const double* query = nullptr;
  const double* key = nullptr;
  const double* value = nullptr;
  const double* beta = nullptr;
  const double* log_decay = nullptr;
};

// Step by step, from a zero state S [key_dim, value_dim]: S ← exp(log_decay)·S; S ← S + key·(beta·(value − Sᵀkey))ᵀ;
// output [sequences, time, value_dim] = Sᵀquery.
void gated_delta_reference(const GatedDeltaShape& shape, const GatedDeltaInput& input, double* output);

}  // namespace plumb::kernels
