// Softmax and its loss over a vocabulary of which this rank has the logits of one part: of a tensor group (arXiv
// 1909.08053, section 3), or of a pipeline (Yeung et al., arXiv 2411.05288, algorithms 1 and 2). Rows are tokens; p
// parts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "exec/stage/vocabulary/local_indices.hpp"

namespace plumb::exec {

// Of each token this part's numbers, or of all parts together: the largest logit m, the sum of exp(logit − m), and the
// logit of its target, 0 where another part has it. [tokens, 3], fp32.
using TokenStatistics = at::Tensor;

// What S leaves of a microbatch.
struct PartLogits {
  at::Tensor logits;           // [tokens, rows], wide (exec/stage/primitives/weights.hpp), this one's alone
  LocalIndices targets;        // [tokens, 1]
  TokenStatistics statistics;  // of this part
};

// `logits` [tokens, rows] is given up. `targets` [tokens]: of the whole vocabulary, of which this part has those from
// `first_row` on.
[[nodiscard]] PartLogits part_logits(at::Tensor logits, const at::Tensor& targets, std::int64_t first_row);

// [p, tokens, 3] → of all parts together; the same bits wherever it is made.
[[nodiscard]] TokenStatistics joined_statistics(const at::Tensor& of_parts);
// [tokens, 1]: log of the sum of exp of all logits.
[[nodiscard]] at::Tensor log_sum(const TokenStatistics& of_all);
// Mean over the tokens of −log softmax at their targets.
[[nodiscard]] at::Tensor mean_loss(const TokenStatistics& of_all);

// Algorithm 1: of all parts' softmax the logarithm, of this part's rows. Gives up `part.logits`.
[[nodiscard]] at::Tensor log_softmax(PartLogits& part, const TokenStatistics& of_all);
// T: of that, which it changes to it, the gradient of the logits, (softmax − one-hot) · scale; `scale`: one number.
[[nodiscard]] at::Tensor gradient_of_logits(at::Tensor log_softmax, const LocalIndices& targets,
                                            const at::Tensor& scale);

// Algorithm 2, S: the part's own softmax, over its rows alone, in `type`. Gives up `part.logits`.
[[nodiscard]] at::Tensor own_softmax(PartLogits& part, at::ScalarType type);
// By which that is multiplied to be the softmax of all: [tokens, 1].
[[nodiscard]] at::Tensor scale_of_part(const PartLogits& part, const TokenStatistics& of_all);

}  // namespace plumb::exec
