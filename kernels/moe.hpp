// Tokens to their experts and back: rows sorted by expert, and their weighted sum (as in arXiv 2211.15841, section 5).
#pragma once

#include <cstdint>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

struct MoeShape {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;    // choices of each token: at most 64
  std::int64_t experts = 0;  // at most 4096
};

// Where each choice goes. expert_of [tokens, top_k] (−1: dropped) gives row_of [tokens, top_k] (−1: dropped), the rows
// sorted by expert and, within one, by token and choice; those of expert e are offsets[e] … offsets[e + 1] − 1.
struct MoePlan {
  const std::int32_t* expert_of = nullptr;
  std::int32_t* row_of = nullptr;
  std::int32_t* offsets = nullptr;    // [experts + 1]
  std::int32_t* workspace = nullptr;  // [moe_workspace]
};
[[nodiscard]] std::int64_t moe_workspace(const MoeShape& shape);

// rows[row_of[t, j]] = x[t]. Its backward is moe_unpermute without weights. x [tokens, hidden].
template <class Element>
struct MoePermute {
  const Element* x = nullptr;
  const std::int32_t* row_of = nullptr;
  Element* rows = nullptr;
};

// y[t] = sum over j, in its order, of weight[t, j] · rows[row_of[t, j]]; weight [tokens, top_k], none: 1.
template <class Element>
struct MoeUnpermute {
  const Element* rows = nullptr;
  const std::int32_t* row_of = nullptr;
  const Statistic<Element>* weight = nullptr;
  Element* y = nullptr;
};

// drows[row_of[t, j]] = weight[t, j] · dy[t]; dweight[t, j] = dy[t] · rows[row_of[t, j]], of a dropped choice 0.
template <class Element>
struct MoeUnpermuteBackward {
  const Element* dy = nullptr;
  const Element* rows = nullptr;
  const std::int32_t* row_of = nullptr;
  const Statistic<Element>* weight = nullptr;
  Element* drows = nullptr;
  Statistic<Element>* dweight = nullptr;
};

// On the GPU; all throw std::invalid_argument on a bad shape and CudaError where CUDA fails.
void moe_plan(const MoeShape& shape, const MoePlan& arguments, Stream stream);
void moe_permute(const MoeShape& shape, Type type, const MoePermute<void>& arguments, Stream stream);
void moe_unpermute(const MoeShape& shape, Type type, const MoeUnpermute<void>& arguments, Stream stream);
void moe_unpermute_backward(const MoeShape& shape, Type type, const MoeUnpermuteBackward<void>& arguments,
                            Stream stream);

void moe_plan_reference(const MoeShape& shape, const MoePlan& arguments);  // needs no workspace
void moe_permute_reference(const MoeShape& shape, const MoePermute<double>& arguments);
void moe_unpermute_reference(const MoeShape& shape, const MoeUnpermute<double>& arguments);
void moe_unpermute_backward_reference(const MoeShape& shape, const MoeUnpermuteBackward<double>& arguments);

}  // namespace plumb::kernels
