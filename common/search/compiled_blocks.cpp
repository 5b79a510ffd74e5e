#include "common/search/compiled_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>

namespace plumb {
namespace {

constexpr int before_all = std::numeric_limits<int>::min() / 2;
constexpr int behind_all = std::numeric_limits<int>::max() / 2;

bool is_topological(const ScheduleGraph& graph, const std::vector<NodeId>& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t n = 0; n < order.size(); ++n) place[order[n]] = n;
  for (const NodeId node : order) {
    for (const auto next : successors(graph, node)) {
      if (place[next] < place[node]) return false;
    }
  }
  return true;
}

// The actions of which blocks are made.
enum class BlockPhase : std::uint8_t { all, forward, others };

class BlockFinder {
 public:
  BlockFinder(const Schedule& lowered, const ScheduleGraph& graph, int period, BlockPhase phase)
      : schedule_(lowered),
        graph_(graph),
        period_(period),
        phase_(phase),
        turn_(graph.nodes.size(), 0),
        offset_(graph.rank_order.size(), 0) {}

  std::optional<NodeBlocks> run() {
    for (std::size_t rank = 0; rank < graph_.rank_order.size(); ++rank) {
      if (!find_turns(rank)) return std::nullopt;
    }
    if (!align()) return std::nullopt;
    return in_order();
  }

 private:
  // Of each node of the rank, the turn of the repeating run that it belongs to.
  bool find_turns(std::size_t rank) {
    const std::vector<NodeId>& order = graph_.rank_order[rank];
    std::size_t computes = 0;
    std::size_t of_phase = 0;
    for (const NodeId node : order) {
      if (graph_.nodes[node].kind != NodeKind::compute) continue;
      ++computes;
      of_phase += in_phase(node) ? 1 : 0;
    }
    const auto all = static_cast<std::size_t>(schedule_.microbatches);
    const auto period = static_cast<std::size_t>(period_);
    if (of_phase == 0 || of_phase * period % all != 0) return false;
    const std::size_t length = of_phase * period / all;
    const auto repeats = [&](std::size_t n) {
      if (!in_phase(order[n])) return false;
      Action next = graph_.nodes[order[n]].action;
      next.microbatch += period_;
      return n + length < computes && graph_.nodes[order[n + length]].action == next;
    };
    std::size_t best_begin = 0;
    std::size_t best_end = 0;
    for (std::size_t begin = 0; begin < computes;) {
      std::size_t end = begin;
      while (end < computes && repeats(end)) ++end;
      if (end - begin > best_end - best_begin) {
        best_begin = begin;
        best_end = end;
      }
      begin = end + 1;
    }
    if (best_end == best_begin) return false;
    const std::size_t turns = (best_end - best_begin) / length + 1;
    for (std::size_t n = 0; n < order.size(); ++n) {
      int& turn = turn_[order[n]];
      turn = n < best_begin                     ? before_all
             : n >= best_begin + turns * length ? behind_all
                                                : static_cast<int>((n - best_begin) / length);
    }
    turns_.push_back(static_cast<int>(turns));
    return true;
  }

  [[nodiscard]] bool in_phase(NodeId node) const {
    return phase_ == BlockPhase::all ||
           (phase_ == BlockPhase::forward) == (graph_.nodes[node].action.kind == ActionKind::forward);
  }
  [[nodiscard]] static bool in_run(int turn) { return turn != before_all && turn != behind_all; }
  [[nodiscard]] bool on_rank(NodeId node) const { return occupies_rank(graph_.nodes[node]); }

  // Shifts the ranks' turns until nothing waits for a later one; messages are as late as what they wait for.
  bool align() {
    const std::size_t most_rounds = 2 * graph_.rank_order.size() + 4;
    for (std::size_t round = 0; round < most_rounds; ++round) {
      set_blocks();
      std::vector<int> later(offset_.size(), 0);
      for (const NodeId node : graph_.topological_order) {
        if (block_[node] == behind_all) continue;
        for (const auto next : successors(graph_, node)) {
          if (!on_rank(next) || !in_run(turn_[next]) || block_[node] <= block_[next]) continue;
          int& by = later[static_cast<std::size_t>(graph_.nodes[next].rank)];
          by = std::max(by, block_[node] - block_[next]);
        }
      }
      if (std::ranges::all_of(later, [](int by) { return by == 0; })) return true;
      for (std::size_t rank = 0; rank < later.size(); ++rank) offset_[rank] += later[rank];
    }
    return false;
  }

  [[nodiscard]] bool is_before_forward(NodeId node) const {
    const auto is_compute = [&](NodeId next) { return graph_.nodes[next].kind == NodeKind::compute; };
    return std::ranges::any_of(successors(graph_, node), is_compute);
  }

  void set_blocks() {
    block_.assign(graph_.nodes.size(), before_all);
    for (const NodeId node : graph_.topological_order) {
      // Once, at the end of the step; but weights that are gathered before an F.
      if (graph_.nodes[node].kind == NodeKind::collective && !is_before_forward(node)) block_[node] = behind_all;
      if (on_rank(node)) {
        const int shift = offset_[static_cast<std::size_t>(graph_.nodes[node].rank)];
        block_[node] = in_run(turn_[node]) ? turn_[node] + shift : turn_[node];
      }
      for (const auto next : successors(graph_, node)) {
        if (!on_rank(next)) block_[next] = std::max(block_[next], block_[node]);
      }
    }
  }

  // The blocks that every rank has a part of, and that wait for nothing behind them.
  [[nodiscard]] std::pair<int, int> range() const {
    int first = *std::ranges::max_element(offset_);
    int last = behind_all;
    for (std::size_t rank = 0; rank < turns_.size(); ++rank) last = std::min(last, offset_[rank] + turns_[rank]);
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      for (const auto next : successors(graph_, node)) {
        const bool early = block_[next] == before_all && block_[node] != before_all;
        if (early) first = std::max(first, block_[node] == behind_all ? last : block_[node] + 1);
        const bool late = block_[node] == behind_all && block_[next] != behind_all;
        if (late) last = std::min(last, std::max(block_[next], first));
      }
    }
    return {first, last};
  }

  [[nodiscard]] std::optional<NodeBlocks> in_order() {
    const auto [first, last] = range();
    if (last - first < 3) return std::nullopt;
    const auto count = static_cast<std::size_t>(last - first);
    std::vector<NodeId> head;
    std::vector<NodeId> tail;
    std::vector<std::vector<NodeId>> blocks(count);
    for (const NodeId node : graph_.topological_order) {
      const int block = block_[node];
      if (block < first) {
        head.push_back(node);
      } else if (block >= last) {
        tail.push_back(node);
      } else {
        blocks[static_cast<std::size_t>(block - first)].push_back(node);
      }
    }
    if (!match(blocks)) return std::nullopt;
    NodeBlocks result{.order = std::move(head), .first = {{}}};
    std::vector<std::size_t>& starts = result.first.front();
    for (const auto& block : blocks) {
      starts.push_back(result.order.size());
      result.order.insert(result.order.end(), block.begin(), block.end());
    }
    starts.push_back(result.order.size());
    result.order.insert(result.order.end(), tail.begin(), tail.end());
    if (!is_topological(graph_, result.order)) return std::nullopt;
    return result;
  }

  // Puts every block into the order of the last one; the first few, which may differ, stay as they are.
  [[nodiscard]] bool match(std::vector<std::vector<NodeId>>& blocks) const {
    const auto name = [&](NodeId node, std::size_t block) {
      const Node& of = graph_.nodes[node];
      return std::tuple(of.rank, of.kind, of.action.kind, of.action.stage,
                        of.action.microbatch - static_cast<int>(block) * period_);
    };
    const std::size_t last = blocks.size() - 1;
    std::map<decltype(name(0, 0)), std::size_t> place;
    for (std::size_t n = 0; n < blocks[last].size(); ++n) place[name(blocks[last][n], last)] = n;
    std::size_t equal = 1;
    for (std::size_t block = last; block-- > 0;) {
      std::vector<NodeId> sorted(blocks[last].size());
      bool same = blocks[block].size() == sorted.size();
      for (std::size_t n = 0; same && n < sorted.size(); ++n) {
        const auto found = place.find(name(blocks[block][n], block));
        same = found != place.end();
        if (same) sorted[found->second] = blocks[block][n];
      }
      if (!same) break;
      blocks[block] = std::move(sorted);
      ++equal;
    }
    return equal >= 3;
  }

  const Schedule& schedule_;
  const ScheduleGraph& graph_;
  int period_;
  BlockPhase phase_;
  std::vector<int> turn_;    // by node; of those that occupy a rank
  std::vector<int> turns_;   // by rank
  std::vector<int> offset_;  // by rank
  std::vector<int> block_;   // by node
};

// The nodes up to the last block of `second` that `first` has not placed come between its blocks and those of `second`.
std::optional<NodeBlocks> behind_each_other(const ScheduleGraph& graph, const NodeBlocks& first,
                                            const NodeBlocks& second) {
  const std::size_t end = first.first.front().back();
  NodeBlocks both{.order = {first.order.begin(), first.order.begin() + static_cast<std::ptrdiff_t>(end)},
                  .first = first.first};
  std::vector<char> placed(graph.nodes.size(), 0);
  for (const NodeId node : both.order) placed[node] = 1;
  const std::vector<std::size_t>& starts = second.first.front();
  std::size_t block = 0;
  both.first.emplace_back();
  for (std::size_t n = 0; n < second.order.size(); ++n) {
    const bool inside = n >= starts.front() && n < starts.back();
    if (inside && placed[second.order[n]] != 0) return std::nullopt;
    for (; block < starts.size() && starts[block] == n; ++block) both.first.back().push_back(both.order.size());
    if (placed[second.order[n]] == 0) both.order.push_back(second.order[n]);
  }
  if (block < starts.size()) both.first.back().push_back(both.order.size());
  if (both.order.size() != graph.nodes.size() || !is_topological(graph, both.order)) return std::nullopt;
  return both;
}

}  // namespace

std::optional<NodeBlocks> node_blocks(const Schedule& lowered, const ScheduleGraph& graph, int period) {
  if (replicas(lowered) > 1 || lowered.slices > 1 || lowered.update_every > 0) return std::nullopt;
  if (std::optional<NodeBlocks> one = BlockFinder(lowered, graph, period, BlockPhase::all).run()) return one;
  const std::optional<NodeBlocks> forward = BlockFinder(lowered, graph, period, BlockPhase::forward).run();
  if (!forward) return std::nullopt;
  const std::optional<NodeBlocks> others = BlockFinder(lowered, graph, period, BlockPhase::others).run();
  return others ? behind_each_other(graph, *forward, *others) : std::nullopt;
}

}  // namespace plumb
