#include "common/search/compiled_graph.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/stop.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/schedule/weight_versions.hpp"
#include "common/search/compiled_blocks.hpp"

namespace plumb {
namespace {

constexpr std::uint32_t joining = 0;  // the kind of nodes that only wait

class GraphCompiler {
 public:
  GraphCompiler(const Schedule& lowered, const PipelineCosts& costs)
      : schedule_(lowered), graph_(build_graph(lowered, costs)), position_(graph_.nodes.size(), 0) {
    compiled_.microbatches = whole_microbatches(lowered);
    compiled_.slices = lowered.slices;
    compiled_.graph_nodes = graph_.nodes.size();
    compiled_.durations.push_back({});
    messages_.assign(graph_.rank_order.size() * graph_.rank_order.size(), joining);
    others_.assign(lowered.rank_of_stage.size() * action_kinds * static_cast<std::size_t>(lowered.slices), joining);
  }

  CompiledGraph build(int period) {
    collect_predecessors();
    for (const std::vector<Action>& list : schedule_.actions) {
      gathers_first_ = gathers_first_ || gathering_of(list) == WeightGathering::before_forward;
    }
    std::vector<NodeId> order = graph_.topological_order;
    std::optional<NodeBlocks> blocks;
    if (period > 0) blocks = node_blocks(schedule_, graph_, period);
    if (blocks) order = std::move(blocks->order);
    compiled_.nodes.reserve(order.size() + order.size() / 2);
    std::vector<std::uint32_t> first_of(order.size() + 1);  // by place in the order: the position there
    for (std::size_t n = 0; n < order.size(); ++n) {
      first_of[n] = static_cast<std::uint32_t>(compiled_.nodes.size());
      place(order[n]);
    }
    first_of.back() = static_cast<std::uint32_t>(compiled_.nodes.size());
    if (blocks) find_loops(*blocks, first_of, period);
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      if (successors(graph_, node).empty()) compiled_.sinks.push_back(position_[node]);
    }
    add_memory(order);
    compiled_.rank_of_stage = schedule_.rank_of_stage;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      compiled_.stages_of_rank.push_back(stages_of_rank(schedule_, rank));
    }
    return std::move(compiled_);
  }

 private:
  void collect_predecessors() {
    first_.assign(graph_.nodes.size() + 1, 0);
    for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
      first_[node + 1] = first_[node] + graph_.predecessor_count[node];
    }
    predecessors_.resize(first_.back());
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      for (const auto to : successors(graph_, node)) predecessors_[next[to]++] = node;
    }
  }

  // Of slices each has its own times.
  [[nodiscard]] std::size_t place_of(const Action& action) const {
    const int slice = std::max(0, action.microbatch) % schedule_.slices;
    return (static_cast<std::size_t>(action.stage) * action_kinds + static_cast<std::size_t>(action.kind)) *
               static_cast<std::size_t>(schedule_.slices) +
           static_cast<std::size_t>(slice);
  }

  // Messages between two ranks cost the same in both directions of the pipeline, reductions of a stage do not.
  std::uint32_t kind_of(const Node& node) {
    const auto turns = static_cast<std::uint32_t>(node.kind == NodeKind::transfer ? node.duration.value : 1.0);
    std::uint32_t& known = node.kind == NodeKind::transfer
                               ? messages_[static_cast<std::size_t>(node.peer) * graph_.rank_order.size() +
                                           static_cast<std::size_t>(node.rank)]
                               : others_[place_of(node.action)];
    const bool same = known != joining && compiled_.durations[known].turns == static_cast<int>(turns);
    if (same) return known;
    const auto found = more_kinds_.find({&known, turns});
    if (known != joining && found != more_kinds_.end()) return found->second;
    const auto kind = static_cast<std::uint32_t>(compiled_.durations.size());
    compiled_.durations.push_back({.node = node, .turns = static_cast<int>(turns)});
    (known == joining ? known : more_kinds_[{&known, turns}]) = kind;
    return kind;
  }

  // One node, and before it nodes that join where it waits for more than two.
  void place(NodeId node) {
    look_at_stop();
    std::vector<std::uint32_t>& before = before_;  // positions + 1
    before.clear();
    for (std::uint32_t n = first_[node]; n < first_[node + 1]; ++n) before.push_back(position_[predecessors_[n]] + 1);
    std::ranges::sort(before);
    if (before.empty()) before.push_back(0);
    while (before.size() > 2) {
      const std::uint32_t joined = add(before[0], before[1], joining);
      before.erase(before.begin(), before.begin() + 2);
      before.push_back(joined + 1);
    }
    position_[node] = add(before.front(), before.back(), kind_of(graph_.nodes[node]));
  }

  std::uint32_t add(std::uint32_t a, std::uint32_t b, std::uint32_t duration) {
    const auto here = static_cast<std::uint32_t>(compiled_.nodes.size());
    compiled_.nodes.push_back({.back_a = here + 1 - a, .back_b = here + 1 - b, .duration = duration});
    return here;
  }

  // All of them, or none.
  void find_loops(const NodeBlocks& blocks, const std::vector<std::uint32_t>& first_of, int period) {
    std::vector<std::vector<std::uint32_t>> firsts;
    for (const std::vector<std::size_t>& run : blocks.first) {
      std::vector<std::uint32_t>& first = firsts.emplace_back();
      for (const std::size_t n : run) first.push_back(first_of[n]);
    }
    for (std::size_t run = 0; run < firsts.size(); ++run) {
      const bool last = run + 1 == firsts.size();
      find_loop(firsts[run], last ? first_of.back() : firsts[run + 1].back(), period);
    }
    if (compiled_.loops.size() < firsts.size()) compiled_.loops.clear();
  }

  // Blocks are equal if all their nodes are, relative to their positions; what follows the last, up to `end` where
  // another loop stands, may only refer to equal ones, for these stand before it however often it is repeated.
  void find_loop(const std::vector<std::uint32_t>& first, std::uint32_t end, int period) {
    if (first.size() < 4) return;
    const std::size_t last = first.size() - 2;  // first.back() is where the tail begins
    const std::uint32_t size = first[last + 1] - first[last];
    const auto block = [&](std::size_t n) { return compiled_.nodes.begin() + first[n]; };
    std::uint32_t blocks = 1;
    while (blocks <= last && first[last - blocks + 1] - first[last - blocks] == size &&
           std::equal(block(last), block(last) + size, block(last - blocks))) {
      ++blocks;
    }
    std::uint32_t reach = 1;  // of the nodes of a block and of those behind it, in blocks before theirs
    for (std::uint32_t n = 0; n < size; ++n) {
      const CompiledNode& node = *(block(last) + n);
      reach = std::max(reach, (std::max(node.back_a, node.back_b) - n + size - 1) / size);
    }
    for (std::uint32_t n = first.back(); n < end; ++n) {
      const CompiledNode& node = compiled_.nodes[n];
      const std::uint32_t back = std::max(node.back_a, node.back_b);
      const std::uint32_t inside = n - first.back();
      if (back > inside) reach = std::max(reach, (back - inside + size - 1) / size);
    }
    if (blocks < reach + 1) return;
    const auto counts = [](const CompiledNode& node) { return node.duration != joining; };
    const auto graph_nodes = std::count_if(block(last), block(last) + size, counts);
    compiled_.loops.push_back({.begin = first[last],
                               .size = size,
                               .blocks = blocks,
                               .reach = reach,
                               .microbatches = period,
                               .graph_nodes = static_cast<std::size_t>(graph_nodes)});
  }

  // `order`: in which they were placed, so that positions ascend.
  void add_memory(const std::vector<NodeId>& order) {
    const ActionIndex index = index_actions(schedule_);
    const std::map<Action, int> versions = weight_version_changes(schedule_);
    compiled_.ranks.resize(static_cast<std::size_t>(schedule_.ranks));
    std::vector<bool> known(static_cast<std::size_t>(all_stages(schedule_)) * footprint_kinds *
                            static_cast<std::size_t>(schedule_.slices));
    for (const NodeId id : order) {
      const Node& node = graph_.nodes[id];
      auto& rank = compiled_.ranks[static_cast<std::size_t>(node.rank)];
      const auto change = versions.find(node.action);
      const bool gathers = node.action.kind == ActionKind::unshard || node.kind == NodeKind::optimizer;
      if (node.kind == NodeKind::compute || (gathers && gathers_first_) ||
          (node.kind == NodeKind::optimizer && change != versions.end())) {
        CompiledFootprint footprint{
            .action = node.action,
            .redone = is_compute(node.action.kind) &&
                      index.find(ActionKind::recompute, node.action.stage, node.action.microbatch) != nowhere,
            .versions = change != versions.end() ? change->second : 0};
        footprint.index = footprint_index(footprint, schedule_.slices);
        rank.actions.push_back({.position = position_[id], .footprint = footprint.index});
        if (!known[footprint.index]) {
          known[footprint.index] = true;
          compiled_.footprints.push_back(footprint);
        }
      } else if (node.kind == NodeKind::transfer) {
        rank.arrivals.push_back({.position = position_[id], .received = true});
        compiled_.ranks[static_cast<std::size_t>(node.peer)].arrivals.push_back(
            {.position = position_[id], .received = false});
      } else if (joins_parts(node.action.kind)) {
        add_joined(id);
      }
    }
    bound_messages();
    bound_joined();
  }

  // Of BCAST all ranks but the one that had it have one more, of REDUCE all but the one that needs the sum one less.
  void add_joined(NodeId id) {
    const Action& action = graph_.nodes[id].action;
    if (action.kind == ActionKind::all_reduce) return;
    const bool head = sort_of_stage(schedule_, action.stage) == StageSort::head;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (rank == rank_beside_parts(schedule_, action.stage)) continue;
      compiled_.ranks[static_cast<std::size_t>(rank)].arrivals.push_back(
          {.position = position_[id],
           .received = action.kind == ActionKind::broadcast,
           .of = head ? MessageOf::head : MessageOf::embedding});
    }
  }

  // What waits for the head's parts, or for the last stage's B, is of a microbatch that the last rank is between F and
  // B of. Of the embedding the rank has looked up what it has not done F of, or done B of what it has not added yet.
  void bound_joined() {
    if (schedule_.vocabulary_barriers == 0) return;
    const auto most_of = [&](int rank, const auto& change) {
      std::int64_t level = 0;
      std::int64_t most = 0;
      for (const Action& action : schedule_.actions[static_cast<std::size_t>(rank)]) {
        if (is_compute(action.kind)) most = std::max(most, level += change(action));
      }
      return most;
    };
    const auto in_layers = [&](const Action& action) -> std::int64_t {
      if (is_part(schedule_, action.stage)) return 0;
      return action.kind == ActionKind::forward ? 1 : makes_input_gradient(action.kind) ? -1 : 0;
    };
    const auto of_embedding = [&](const Action& action, ActionKind kind) {
      return action.kind == kind && sort_of_stage(schedule_, action.stage) == StageSort::embedding;
    };
    const std::int64_t at_last = most_of(schedule_.ranks - 1, in_layers);
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t ahead = most_of(rank, [&](const Action& action) -> std::int64_t {
        return of_embedding(action, ActionKind::forward) ? 1 : -std::max<std::int64_t>(in_layers(action), 0);
      });
      const std::int64_t behind = most_of(rank, [&](const Action& action) -> std::int64_t {
        return of_embedding(action, ActionKind::backward) ? -1 : std::max<std::int64_t>(-in_layers(action), 0);
      });
      auto& most = compiled_.ranks[static_cast<std::size_t>(rank)].most_messages;
      most[static_cast<std::size_t>(MessageOf::head)] = 2 * at_last;
      most[static_cast<std::size_t>(MessageOf::embedding)] = ahead + behind;
    }
  }

  // An activation that waits is of a microbatch that its sender has not gone back through, a gradient that waits is of
  // one that its receiver has not.
  void bound_messages() {
    const auto count = static_cast<std::size_t>(stages(schedule_));
    std::vector<std::int64_t> under_way(count, 0);
    std::vector<std::int64_t> most(count, 0);
    for (const auto& list : schedule_.actions) {
      for (const Action& action : list) {
        if (is_part(schedule_, action.stage)) continue;
        const auto stage = static_cast<std::size_t>(action.stage);
        if (action.kind == ActionKind::forward) most[stage] = std::max(most[stage], ++under_way[stage]);
        if (makes_input_gradient(action.kind)) --under_way[stage];
      }
      std::ranges::fill(under_way, 0);
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const int stage : stages_of_rank(schedule_, rank)) {
        const auto own = static_cast<std::size_t>(stage);
        if (is_part(schedule_, stage)) continue;
        compiled_.ranks[static_cast<std::size_t>(rank)].most_messages.front() +=
            2 * (most[own] + (own > 0 ? most[own - 1] : 0)) * replicas(schedule_);
      }
    }
  }

  const Schedule& schedule_;
  const ScheduleGraph graph_;
  bool gathers_first_ = false;  // weights before the first F: they are there until STEP
  CompiledGraph compiled_;
  std::vector<std::uint32_t> position_;  // by node
  std::vector<std::uint32_t> first_;     // by node, in predecessors_
  std::vector<NodeId> predecessors_;
  std::vector<std::uint32_t> before_;    // of the node that is being placed
  std::vector<std::uint32_t> messages_;  // kinds, by sender and receiver
  std::vector<std::uint32_t> others_;    // kinds, by stage, kind of action and slice
  std::map<std::pair<const std::uint32_t*, std::uint32_t>, std::uint32_t> more_kinds_;  // of other turns
};

}  // namespace

CompiledGraph compile_graph(const Schedule& lowered, PipelineCosts costs, int period) {
  // A message's duration is then how many take turns with it.
  costs.stages.assign(lowered.rank_of_stage.size(), {});
  costs.boundary_bytes = {};
  costs.tied_bytes = {};
  costs.inside = {.latency = {1}, .bandwidth = {1}};
  costs.outside = costs.inside;
  costs.hidden_in_pairs = 0;
  costs.vocabulary = {.parts = lowered.vocabulary_barriers > 0 ? lowered.ranks : 0};
  return GraphCompiler(lowered, costs).build(period);
}

void set_durations(const CompiledGraph& compiled, const PipelineCosts& costs, const std::vector<bool>& changed,
                   std::vector<double>& durations) {
  durations.resize(compiled.durations.size());
  durations[joining] = 0;
  for (std::size_t n = 1; n < compiled.durations.size(); ++n) {
    const DurationKind& kind = compiled.durations[n];
    if (!changed[static_cast<std::size_t>(kind.node.action.stage)]) continue;
    durations[n] = (time_alone(kind.node, costs) * kind.turns).value;
  }
}

}  // namespace plumb
