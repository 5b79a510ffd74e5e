#include <algorithm>
#include <limits>

#include "common/graph/unfold.hpp"

namespace plumb {

Evaluation folded_back(const ScheduleGraph& folded, const UnfoldedGraph& unfolded, const Evaluation& evaluation,
                       const std::vector<int>& rank_of) {
  Evaluation result;
  for (NodeId id = 0; id < unfolded.copies.size(); ++id) {
    const std::vector<NodeCopy>& copies = unfolded.copies[id];
    const int rank = rank_of[static_cast<std::size_t>(folded.nodes[id].rank)];
    auto first = copies.begin();
    auto end = copies.end();
    if (rank != all_ranks) {
      first = std::ranges::lower_bound(copies, rank, {}, &NodeCopy::rank);
      end = std::ranges::upper_bound(copies, rank, {}, &NodeCopy::rank);
    }
    Seconds start{std::numeric_limits<double>::infinity()};
    Seconds last;
    for (auto copy = first; copy != end; ++copy) {
      start = std::min(start, evaluation.start[copy->first]);
      last = std::max(last, evaluation.end[copy->last]);
    }
    result.start.push_back(start);
    result.end.push_back(last);
    result.makespan = std::max(result.makespan, last);
  }
  return result;
}

}  // namespace plumb
