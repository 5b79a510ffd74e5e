// Cuts a sequence into slices of equal work: the computation-wise sequence partition of Seq1F1B (arXiv 2406.03488).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/units.hpp"

namespace plumb {

struct SliceProblem {
  std::int64_t sequence = 0;  // tokens
  int slices = 1;
  std::int64_t multiple = 1;  // of tokens, that slices have; the last one has what is left of the sequence beside it
  bool can_be_equal = true;   // with what each then has, if it divides the sequence: in multiples or not
};

// Of the slice of `tokens` tokens behind `before` others.
using SliceWork = std::function<Seconds(std::int64_t before, std::int64_t tokens)>;

// Tokens of each slice, the longest of which takes as little as can be, all in multiples; then slices beside each other
// are evened as far as multiples let them. Exact where work grows with the tokens and never shrinks with those before
// them; else what it finds. No longer than with equal numbers of tokens, where these can be: else those it returns.
// Work is asked for of some hundred slices. Throws InputError where the sequence has too few multiples.
[[nodiscard]] std::vector<std::int64_t> equal_work_slices(const SliceProblem& problem, const SliceWork& work);

}  // namespace plumb
