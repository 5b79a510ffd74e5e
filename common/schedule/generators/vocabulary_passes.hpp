// The passes of a divided vocabulary in the list of a rank; only generators include it.
#pragma once

#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// A rank's list with the passes of its parts (common/schedule/vocabulary_parts.hpp), of a schedule with one stage per
// rank whose lists go on so: (p−r−1+b) × F with b barriers, then per microbatch F while there are any and B, or I and
// some W.
//
// Turn j of the parts is T(j−1), S(j) and what the embedding does meanwhile. On the last rank it stands behind F(j) for
// j < b, then behind B(j−b), so that BCAST of j runs beside that and what joins the parts behind the turn beside its
// next F. Rank r is (p−2−r)·B behind with its own B(j−b); it has the turn where, if F = B/2 = I = W, one of its actions
// ends between the last rank's F(j) and the end of its B(j−b), the first such. So B(j) of the last rank is b turns
// behind its F(j), and every rank holds b more microbatches than without parts (arXiv 2411.05288, section 5). The
// embedding's F goes before the first rank's F by a turn or two, its B behind the first rank's B by as many.
[[nodiscard]] std::vector<Action> with_vocabulary_passes(const Schedule& schedule, int rank,
                                                         const std::vector<Action>& list);

}  // namespace plumb
