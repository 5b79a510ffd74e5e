// What joins the parts of a vocabulary that is divided over a pipeline's ranks (common/schedule/vocabulary_parts.hpp).
#pragma once

#include <array>
#include <utility>

#include "common/base/units.hpp"

namespace plumb {

// Of the ranks of a pipeline, all at once: nothing for `latency`, then each sends `inside` bytes to the next one on its
// machine and `outside` bytes to one on the next machine.
struct JoinCost {
  Bytes bytes = {};  // that are joined, as one rank has them
  Seconds latency = {};
  double inside = 0;
  double outside = 0;
  Seconds alone = {};
  bool operator==(const JoinCost&) const = default;
};

// Of one microbatch.
struct VocabularyCost {
  int parts = 0;                      // one for each rank, of the head and of the embedding; 0: it is not divided
  JoinCost head_broadcast = {};       // of hidden states, also of those that predict more tokens
  JoinCost statistics = {};           // of each of their tokens the largest logit, its target's, the exponentials' sum
  JoinCost head_sum = {};             // of their gradients; with one barrier each summand is scaled first
  JoinCost embedding_sum = {};        // of hidden states
  JoinCost embedding_broadcast = {};  // of their gradient
  BytesPerSecond inside = {};         // at which a rank sends of them to another one of its machine
  bool operator==(const VocabularyCost&) const = default;
};

// All that joins them, by its name in a file.
inline constexpr std::array<std::pair<const char*, JoinCost VocabularyCost::*>, 5> vocabulary_joins{
    {{"head_broadcast", &VocabularyCost::head_broadcast},
     {"statistics", &VocabularyCost::statistics},
     {"head_sum", &VocabularyCost::head_sum},
     {"embedding_sum", &VocabularyCost::embedding_sum},
     {"embedding_broadcast", &VocabularyCost::embedding_broadcast}}};

}  // namespace plumb
