#include "exec/stage/primitives/delta_rule.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

namespace plumb::exec {
namespace {

// [batch, heads, time, …] to [batch, heads, chunks, chunk, …]; a padded step has beta 0 and decay 1: it changes
// nothing.
at::Tensor chunked(const at::Tensor& x, std::int64_t chunk) {
  const std::int64_t time = x.size(2);
  const std::int64_t chunks = (time + chunk - 1) / chunk;
  at::Tensor padded = x;
  if (chunks * chunk != time) {
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape[2] = chunks * chunk - time;
    padded = at::cat({x, at::zeros(shape, x.options())}, 2);
  }
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape[2] = chunks;
  shape.insert(shape.begin() + 3, chunk);
  return padded.reshape(shape);
}

// Sums over the last dimension up to each place. LibTorch's own is refused on CUDA where results must not depend on
// timing; a product with ones does not.
at::Tensor summed_up(const at::Tensor& x) {
  if (x.is_cpu()) return x.cumsum(-1);
  return at::matmul(x, at::ones({x.size(-1), x.size(-1)}, x.options().requires_grad(false)).triu_());
}

}  // namespace

at::Tensor delta_rule(const DeltaInput& input, std::int64_t chunk, at::Tensor* carried) {
  const std::int64_t time = input.query.size(2);
  const at::Tensor query = chunked(input.query, chunk);
  const at::Tensor key = chunked(input.key, chunk);
  const at::Tensor beta = chunked(input.beta, chunk).unsqueeze(-1);
  const at::Tensor decay = summed_up(chunked(input.log_decay, chunk));  // log, since the chunk's start
  const at::Tensor grown = decay.exp().unsqueeze(-1);

  // within[i, j] = exp(decay_i − decay_j) for j ≤ i, else 0.
  const at::Tensor future = at::ones({chunk, chunk}, query.options().dtype(at::kBool).requires_grad(false)).triu_(1);
  const at::Tensor within =
      (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(future, -std::numeric_limits<double>::infinity()).exp();
  // What each step writes: (I + tril(beta k kᵀ ∘ within, −1)) writes = beta (v − decayed state k).
  const at::Tensor transposed = key.transpose(-1, -2);
  const at::Tensor scaled_key = key * beta;
  const at::Tensor coupling = at::matmul(scaled_key, transposed) * within;
  const at::Tensor right = at::cat({chunked(input.value, chunk) * beta, scaled_key * grown}, -1);
  const at::Tensor solved = at::linalg_solve_triangular(coupling, right, /*upper=*/false, /*left=*/true,
                                                        /*unitriangular=*/true);
  const std::int64_t value_dim = input.value.size(-1);
  const at::Tensor writes = solved.narrow(-1, 0, value_dim);
  const at::Tensor reads = solved.narrow(-1, value_dim, key.size(-1));

  const at::Tensor score = at::matmul(query, transposed) * within;
  const at::Tensor grown_query = query * grown;
  const at::Tensor last = decay.narrow(-1, chunk - 1, 1);
  const at::Tensor fading_key = (key * (last - decay).exp().unsqueeze(-1)).transpose(-1, -2);
  const at::Tensor keep = last.exp().unsqueeze(-1);

  const std::int64_t chunks = query.size(2);
  std::vector<at::Tensor> outputs;
  at::Tensor state = carried != nullptr ? *carried : at::Tensor();  // undefined: zero
  for (std::int64_t index = 0; index < chunks; ++index) {
    at::Tensor added = writes.select(2, index);
    at::Tensor out;
    if (state.defined()) {
      added = added - at::matmul(reads.select(2, index), state);
      out = at::matmul(grown_query.select(2, index), state) + at::matmul(score.select(2, index), added);
    } else {
      out = at::matmul(score.select(2, index), added);
    }
    outputs.push_back(out);
    if (index + 1 < chunks || carried != nullptr) {
      const at::Tensor update = at::matmul(fading_key.select(2, index), added);
      state = state.defined() ? state * keep.select(2, index) + update : update;
    }
  }
  if (carried != nullptr) {
    *carried = state;
  }
  return at::stack(outputs, 2).flatten(2, 3).narrow(2, 0, time);
}

}  // namespace plumb::exec
