#include "common/timeline/diff/straggler.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace plumb {
namespace {

struct Sums {
  Seconds predicted;
  Seconds measured;

  // 0 where nothing was predicted.
  [[nodiscard]] double ratio() const { return predicted.value > 0 ? measured / predicted : 0; }
};

}  // namespace

std::vector<std::optional<double>> stragglers(const ScheduleGraph& graph, const std::vector<Seconds>& predicted,
                                              const std::vector<Seconds>& measured) {
  const auto ranks = static_cast<std::size_t>(graph.ranks);
  std::vector<Sums> totals(ranks);
  std::vector<std::array<Sums, compute_kinds.size()>> by_kind(ranks);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.kind != NodeKind::compute) continue;
    const auto rank = static_cast<std::size_t>(node.rank);
    for (Sums* sums : {&totals[rank], &by_kind[rank][static_cast<std::size_t>(node.action.kind)]}) {
      sums->predicted += predicted[i];
      sums->measured += measured[i];
    }
  }
  std::vector<double> ratios;
  ratios.reserve(ranks);
  for (const Sums& total : totals) ratios.push_back(total.ratio());
  std::vector<double> sorted = ratios;
  std::ranges::sort(sorted);
  const double median = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];

  std::vector<std::optional<double>> found(ranks);
  if (ranks < 2 || std::abs(median - 1) > straggler_spread_fraction) return found;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!(ratios[rank] >= median * (1 + straggler_lag_fraction))) continue;
    const bool alike = std::ranges::all_of(by_kind[rank], [&](const Sums& kind) {
      return !(kind.predicted.value > 0) ||
             std::abs(kind.ratio() - ratios[rank]) <= straggler_spread_fraction * ratios[rank];
    });
    if (alike) found[rank] = ratios[rank] / median;
  }
  return found;
}

}  // namespace plumb
