#include "common/graph/longest_chains.hpp"

#include <algorithm>
#include <limits>

namespace plumb {

LongestChains::LongestChains(const ScheduleGraph& graph, const Evaluation& evaluation) {
  constexpr double equal = 1e-9;
  const Seconds slack = evaluation.makespan * equal;
  const std::size_t count = graph.nodes.size();
  took_.resize(count);
  std::vector<Seconds> waited_until(count);  // of each node, the end of what it waited for last
  for (NodeId node = 0; node < count; ++node) {
    took_[node] = evaluation.end[node] - evaluation.start[node];
    for (const auto next : successors(graph, node)) {
      waited_until[next] = std::max(waited_until[next], evaluation.end[node]);
    }
  }
  const auto binds = [&](NodeId node, NodeId next) { return evaluation.end[node] >= waited_until[next] - slack; };
  std::vector<bool> on_chain(count);
  std::size_t chained = 0;
  for (auto at = graph.topological_order.rbegin(); at != graph.topological_order.rend(); ++at) {
    const bool last = evaluation.end[*at] >= evaluation.makespan - slack;
    const auto goes_on = [&](const auto next) { return on_chain[next] && binds(*at, static_cast<NodeId>(next)); };
    on_chain[*at] = last || std::ranges::any_of(successors(graph, *at), goes_on);
    if (on_chain[*at]) ++chained;
  }
  links_.reserve(chained);
  std::vector<std::uint32_t> position(count);
  for (const NodeId node : graph.topological_order) {
    if (!on_chain[node]) continue;
    position[node] = static_cast<std::uint32_t>(links_.size());
    links_.push_back({.node = node, .last = evaluation.end[node] >= evaluation.makespan - slack});
  }
  for (const Link& link : links_) {
    for (const auto next : successors(graph, link.node)) {
      if (on_chain[next] && binds(link.node, static_cast<NodeId>(next))) {
        links_[position[next]].before.push_back(position[link.node]);
      }
    }
  }
}

ChainShare LongestChains::share_of(const std::vector<NodeId>& nodes) const {
  std::vector<bool> counts(took_.size());
  for (const NodeId node : nodes) counts[node] = true;
  std::vector<ChainShare> shares(links_.size());
  ChainShare all{.least = {std::numeric_limits<double>::infinity()}};
  for (std::size_t n = 0; n < links_.size(); ++n) {
    const Link& link = links_[n];
    ChainShare before;
    for (std::size_t i = 0; i < link.before.size(); ++i) {
      const ChainShare& one = shares[link.before[i]];
      before.least = i == 0 ? one.least : std::min(before.least, one.least);
      before.most = std::max(before.most, one.most);
    }
    const Seconds own = counts[link.node] ? took_[link.node] : Seconds{};
    shares[n] = {.least = before.least + own, .most = before.most + own};
    if (!link.last) continue;
    all.least = std::min(all.least, shares[n].least);
    all.most = std::max(all.most, shares[n].most);
  }
  return links_.empty() ? ChainShare{} : all;
}

}  // namespace plumb
