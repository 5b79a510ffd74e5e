// All chains of nodes that end last, where several are equally long: how much of them a class of nodes is.
#pragma once

#include <vector>

#include "common/graph/evaluate.hpp"

namespace plumb {

// Of the time of a chain, the least and the most that these nodes are on any of the longest.
struct ChainShare {
  Seconds least = {};
  Seconds most = {};
};

// Ends that differ by less than a billionth of the makespan count as equal.
class LongestChains {
 public:
  LongestChains(const ScheduleGraph& graph, const Evaluation& evaluation);

  // When every node of a class takes a fraction x less, the step takes `least` · x less at first; when they take more,
  // `most` · x more: the derivative of a largest of several sums to either side.
  [[nodiscard]] ChainShare share_of(const std::vector<NodeId>& nodes) const;

 private:
  struct Link {
    NodeId node = 0;
    std::vector<std::uint32_t> before = {};  // positions of those that it waited for last
    bool last = false;                       // it ends the step
  };
  std::vector<Link> links_;    // on some longest chain, in topological order
  std::vector<Seconds> took_;  // by node
};

}  // namespace plumb
