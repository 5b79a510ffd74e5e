// Takes memory from the ranks of a schedule that does not need it to end as early as it does.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

// Not later than `candidate`, and no rank keeps more than there: each as little as `evaluations` attempts find, the
// fullest first.
[[nodiscard]] Candidate lightened(const Model& model, Candidate candidate, std::size_t evaluations);

}  // namespace plumb::zb_auto
