// Three launches, as Gated DeltaNet's own implementation has them (flash-linear-attention: states are made again, none
// are kept from the forward pass). With S the state at a chunk's beginning, U its writes (gated_delta.cu), dS what
// comes to the state at its end, grown, decay, last, score and coupling as there, and fading_j = exp(last − decay_j):
//   1. the forward scan again, which leaves S of each chunk and U
//   2. the scan from the last chunk to the first, which leaves dS of each chunk, dR and dv:
//      dU_j = sum over i of score_ij dO_i + fading_j dSᵀk_j;  (I + coupling)ᵀ dR = dU;  dv_i = beta_i dR_i;
//      dS ← exp(last) dS + sum over i of grown_i (q_i dO_iᵀ − beta_i k_i dR_iᵀ)
//   3. each chunk by itself, with D_ij = dO_i·U_j exp(decay_i − decay_j) and E_ij = dR_i·U_j exp(decay_i − decay_j):
//      dq_i = grown_i S dO_i + sum over j ≤ i of D_ij k_j
//      r_i = grown_i S dR_i + sum over j < i of E_ij k_j                                      (k_i as it recalls)
//      w_j = fading_j dS U_j + sum over i ≥ j of D_ij q_i − sum over i > j of beta_i E_ij k_i   (k_j as it is written)
//      dk = w − beta r;  dbeta_i = dR_i·v_i − k_i·r_i;  dlog_decay_t = sum over i ≥ t of what decay_i has:
//      q_i·dq_i − beta_i k_i·r_i − k_i·w_i, and of the last one exp(last) ⟨S, dS⟩ + sum over j of fading_j k_j·dS U_j
//      more. The pairs' parts of these sums are added up in fp32 from the very numbers that cancel each other.
#include <algorithm>
#include <cstddef>

#include "kernels/device/device.cuh"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/gated_delta_pairs.cuh"
#include "kernels/gated_delta/gated_delta_scan.cuh"

namespace plumb::kernels {
namespace {

using namespace device;

std::int64_t chunks_of(const GatedDeltaShape& shape) { return ceil_div(shape.time, chunk); }
std::int64_t states_of(const GatedDeltaShape& shape) {
  return shape.sequences * chunks_of(shape) * shape.value_dim * shape.key_dim;
}
std::int64_t writes_of(const GatedDeltaShape& shape) { return shape.sequences * shape.time * shape.value_dim; }

// Of the kernels of both passes the one that takes most.
template <class T, int Keys>
constexpr std::size_t most_bytes = std::max({sizeof(Tiles<T, Keys>), sizeof(ScanTiles<T, Keys>),
                                             sizeof(PairTiles<T, Keys>)});

template <class T, int Keys>
void launch_backward(const GatedDeltaShape& shape, Type type, const GatedDeltaBackward& a, Stream stream) {
  T* const states = static_cast<T*>(a.workspace);
  T* const dstates = states + states_of(shape);
  T* const writes = dstates + states_of(shape);
  T* const right = writes + writes_of(shape);
  const GatedDeltaForward again = {.query = a.query,
                                   .key = a.key,
                                   .value = a.value,
                                   .beta = a.beta,
                                   .log_decay = a.log_decay,
                                   .first_state = a.first_state,
                                   .output = nullptr,
                                   .last_state = nullptr,
                                   .states = states,
                                   .writes = writes};
  gated_delta_forward(shape, type, again, stream);
  const Rule<T> rule = rule_of<T>(shape, again);
  Scan<T> scan = {.rule = rule, .right = right, .dvalue = static_cast<T*>(a.dvalue), .dstates = dstates};
  scan.rule.value = static_cast<const T*>(a.doutput);
  scan.rule.first_state = a.dlast_state;
  scan.rule.last_state = a.dfirst_state;
  const auto sequences = static_cast<unsigned>(shape.sequences);
  launch(scan_kernel<T, Keys>, dim3(static_cast<unsigned>(shape.value_dim / value_columns), sequences), threads,
         sizeof(ScanTiles<T, Keys>), stream, scan);
  const Pairs<T> pairs = {.rule = rule,
                          .doutput = static_cast<const T*>(a.doutput),
                          .right = right,
                          .dstates = dstates,
                          .dquery = static_cast<T*>(a.dquery),
                          .dkey = static_cast<T*>(a.dkey),
                          .dbeta = a.dbeta,
                          .dlog_decay = a.dlog_decay};
  launch(pairs_kernel<T, Keys>, dim3(static_cast<unsigned>(chunks_of(shape)), sequences), threads,
         sizeof(PairTiles<T, Keys>), stream, pairs);
}

}  // namespace

bool gated_delta_fits(const GatedDeltaShape& shape, Type type) {
  if (!gated_delta_goes_by_chunks(shape)) return false;
  std::size_t bytes = 0;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    bytes = shape.key_dim == 64 ? most_bytes<T, 64> : most_bytes<T, 128>;
  });
  return bytes <= most_shared();
}

std::int64_t gated_delta_workspace(const GatedDeltaShape& shape, Type type) {
  return 2 * (states_of(shape) + writes_of(shape)) * static_cast<std::int64_t>(bytes_of(type));
}

void gated_delta_backward(const GatedDeltaShape& shape, Type type, const GatedDeltaBackward& a, Stream stream) {
  require(gated_delta_goes_by_chunks(shape), "keys of 64 or 128, values of a multiple of 32");
  require(shape.sequences >= 0 && shape.sequences <= 65535, "up to 65535 sequences");
  require(shape.time >= 1 && shape.time < (1 << 30), "1 <= time < 2^30");
  require(begin_in_eights(type, a.query, a.key, a.value, a.doutput, a.dquery, a.dkey, a.dvalue, a.workspace),
          "arrays that begin at multiples of 8 elements");
  if (shape.sequences == 0) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if (shape.key_dim == 64) return launch_backward<T, 64>(shape, type, a, stream);
    return launch_backward<T, 128>(shape, type, a, stream);
  });
}

}  // namespace plumb::kernels
