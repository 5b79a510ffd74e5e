#include "sim/runner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "sim/engine.hpp"

namespace plumb::sim {
namespace {

std::string describe(const Node& node) { return "rank " + std::to_string(node.rank) + ": " + to_string(node.action); }

void require_group(const ScheduleGraph& graph, const Node& node, const Platform& platform) {
  const auto index = static_cast<std::size_t>(node.group);
  const bool known = index < graph.groups.size() && graph.groups[index].size() > 1 && node.flow >= 0 &&
                     static_cast<std::size_t>(node.flow) < graph.flows.size();
  if (!known) throw InputError(describe(node), "its group or its flow is not in the graph");
  const std::vector<int>& ranks = graph.groups[index];
  const bool ascending = std::ranges::adjacent_find(ranks, std::greater_equal<>{}) == ranks.end();
  if (ascending && ranks.front() >= 0 && ranks.back() < platform.ranks) return;
  throw InputError(describe(node), "its group is not of different ranks of the platform, in ascending order");
}

// From whom to whom the ranks of a group send: around the ranks of each machine, and from each of them to one on the
// next machine.
struct GroupFlows {
  std::vector<std::pair<int, int>> inside;
  std::vector<std::pair<int, int>> outside;
};

GroupFlows flows_of(const std::vector<int>& ranks, const Platform& platform) {
  std::vector<std::span<const int>> machines;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && on_one_machine(platform, ranks[begin], ranks[end])) ++end;
    machines.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(begin), end - begin);
    begin = end;
  }
  GroupFlows flows;
  for (std::size_t machine = 0; machine < machines.size(); ++machine) {
    const std::span<const int> here = machines[machine];
    const std::span<const int> next = machines[(machine + 1) % machines.size()];
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (here.size() > 1) flows.inside.emplace_back(here[i], here[(i + 1) % here.size()]);
      if (machines.size() > 1) flows.outside.emplace_back(here[i], next[i % next.size()]);
    }
  }
  return flows;
}

void require_runnable(const ScheduleGraph& graph, const Platform& platform) {
  const auto on_platform = [&](int rank) { return rank >= 0 && rank < platform.ranks; };
  for (const Node& node : graph.nodes) {
    const bool folded = is_folded(node);
    const bool of_group = node.kind == NodeKind::collective && node.group >= 0;
    const bool between_ranks = !folded && !of_group &&
                               (node.kind == NodeKind::transfer || node.kind == NodeKind::collective ||
                                (node.kind == NodeKind::host_copy && node.peer >= 0));
    if (!std::isfinite(node.duration.value) || node.duration.value < 0) {
      throw InputError(describe(node), "its duration must be zero or more seconds");
    }
    if (of_group) require_group(graph, node, platform);
    if (node.kind == NodeKind::reshard) throw InputError(describe(node), "resharding is not simulated yet");
    if (!on_platform(node.rank) || (between_ranks && (!on_platform(node.peer) || node.peer == node.rank))) {
      throw InputError(describe(node), "its ranks are not two of the platform's " + std::to_string(platform.ranks));
    }
    if (node.bytes.value < 0) throw InputError(describe(node), "its number of bytes is negative");
  }
}

// One pass over a graph. Only activities under way exist in the engine; how many predecessors a node still waits for is
// counted here.
class Run {
 public:
  Run(const ScheduleGraph& graph, const Platform& platform, std::span<const Disturbance> disturbances)
      : graph_(graph),
        platform_(platform),
        engine_(platform, disturbances),
        may_fail_(anything_fails(disturbances)),
        waits_for_(graph.predecessor_count),
        parts_(graph.nodes.size(), 1),
        left_(graph.nodes.size()) {
    std::map<int, std::vector<Disturbance>> of_rank;
    for (const Disturbance& disturbance : disturbances) {
      if (disturbance.what == Disturbed::reduction) of_rank[disturbance.rank].push_back(disturbance);
    }
    for (const auto& [rank, own] : of_rank) reductions_[rank] = speed_changes(own);
    for (const std::vector<int>& group : graph.groups) group_flows_.push_back(flows_of(group, platform));
    result_.start.resize(graph.nodes.size());
    result_.end.resize(graph.nodes.size());
  }

  StepOutcome run() {
    for (NodeId id = 0; id < waits_for_.size(); ++id) {
      if (waits_for_[id] == 0) ready_.push_back(id);
    }
    start_ready();
    engine_.run([this](std::span<const ActivityId> ended) {
      for (const ActivityId id : ended) {
        look_at_stop();
        if (--parts_[id] == 0) complete(id);
      }
      start_ready();
    });
    if (left_ > 0 && !may_fail_) report_left_over();
    return {.evaluation = std::move(result_), .unfinished = left_over()};
  }

 private:
  // In ascending order of ids; nodes that take no time end at once and may make others ready.
  void start_ready() {
    while (!ready_.empty()) {
      starting_.clear();
      starting_.swap(ready_);
      std::sort(starting_.begin(), starting_.end());
      for (const NodeId id : starting_) start(id);
    }
  }

  void start(NodeId id) {
    const Node& node = graph_.nodes[id];
    result_.start[id] = engine_.now();
    if (node.duration.value == 0) return complete(id);
    if (is_folded(node)) return start_reduction(id);
    if (occupies_rank(node)) return engine_.compute(id, node.rank, node.duration);
    if (node.kind == NodeKind::host_copy && node.peer < 0) return engine_.pass(id, node.duration);
    if (node.group >= 0) return start_collective(id);
    if (node.flow >= 0) {
      const Seconds latency = graph_.flows[static_cast<std::size_t>(node.flow)].latency;
      return engine_.transfer(id, node.peer, node.rank, node.bytes, latency);
    }
    const Seconds flowing = node.bytes / transfer_between(platform_, node.peer, node.rank).bandwidth;
    const Seconds latency = {std::max(0.0, (node.duration - flowing).value)};
    engine_.transfer(id, node.peer, node.rank, node.bytes, latency);
    if (node.kind == NodeKind::collective) {
      parts_[id] = 2;
      engine_.transfer(id, node.rank, node.peer, node.bytes, latency);
    }
  }

  // What slows it is known from the start; what never ends is left over.
  void start_reduction(NodeId id) {
    const Node& node = graph_.nodes[id];
    const auto slowed = reductions_.find(node.rank);
    const Seconds time =
        slowed == reductions_.end() ? node.duration : time_under(slowed->second, engine_.now(), node.duration);
    if (std::isfinite(time.value)) engine_.compute(id, node.rank, time);
  }

  void start_collective(NodeId id) {
    const Node& node = graph_.nodes[id];
    const GroupFlows& flows = group_flows_[static_cast<std::size_t>(node.group)];
    const Flow& flow = graph_.flows[static_cast<std::size_t>(node.flow)];
    const bool inside = flow.inside > 0 && !flows.inside.empty();
    const bool outside = flow.outside > 0 && !flows.outside.empty();
    if (!inside && !outside) {  // it has nothing but a latency
      const auto [from, to] = flows.inside.empty() ? flows.outside.front() : flows.inside.front();
      return engine_.flow(id, from, to, 0, flow.latency);
    }
    parts_[id] = static_cast<std::uint32_t>((inside ? flows.inside.size() : 0) + (outside ? flows.outside.size() : 0));
    for (std::size_t i = 0; inside && i < flows.inside.size(); ++i) {
      engine_.flow(id, flows.inside[i].first, flows.inside[i].second, flow.inside, flow.latency);
    }
    for (std::size_t i = 0; outside && i < flows.outside.size(); ++i) {
      engine_.flow(id, flows.outside[i].first, flows.outside[i].second, flow.outside, flow.latency);
    }
  }

  void complete(NodeId id) {
    --left_;
    parts_[id] = 0;
    result_.end[id] = engine_.now();
    result_.makespan = std::max(result_.makespan, result_.end[id]);
    const auto [first, last] = boost::out_edges(id, graph_.edges);
    for (auto edge = first; edge != last; ++edge) {
      const NodeId successor = boost::target(*edge, graph_.edges);
      if (--waits_for_[successor] == 0) ready_.push_back(successor);
    }
  }

  [[nodiscard]] std::vector<NodeId> left_over() const {
    std::vector<NodeId> nodes;
    for (NodeId id = 0; id < waits_for_.size(); ++id) {
      if (parts_[id] > 0) nodes.push_back(id);
    }
    std::stable_partition(nodes.begin(), nodes.end(), [this](NodeId id) { return waits_for_[id] == 0; });
    return nodes;
  }

  [[noreturn]] void report_left_over() const {
    constexpr int named = 5;
    std::string names;
    int count = 0;
    for (NodeId id = 0; id < waits_for_.size() && count < named; ++id) {
      if (waits_for_[id] == 0) continue;
      names += (count++ == 0 ? "" : ", ") + describe(graph_.nodes[id]);
    }
    throw RunError("simulation",
                   std::to_string(left_) + " of " + std::to_string(graph_.nodes.size()) +
                       " actions never started, the first: " + names,
                   "they wait for each other or for something that is not in the schedule");
  }

  const ScheduleGraph& graph_;
  Platform platform_;
  FluidEngine engine_;
  bool may_fail_;
  std::map<int, std::vector<SpeedChange>> reductions_;  // by rank, those that are disturbed
  std::vector<GroupFlows> group_flows_;                 // by group
  std::vector<NodeId> waits_for_;
  std::vector<std::uint32_t> parts_;  // activities of a node that are still under way
  std::vector<NodeId> ready_;
  std::vector<NodeId> starting_;
  std::size_t left_;
  Evaluation result_;
};

}  // namespace

Evaluation simulate(const ScheduleGraph& graph, const Platform& platform) {
  require_runnable(graph, platform);
  return Run(graph, platform, {}).run().evaluation;
}

StepOutcome simulate(const ScheduleGraph& graph, const Platform& platform, std::span<const Disturbance> disturbances) {
  require_runnable(graph, platform);
  return Run(graph, platform, disturbances).run();
}

Evaluation simulate(const ScheduleGraph& graph, const PipelineCosts& costs) {
  return simulate(graph, platform_of(costs, graph.ranks));
}

}  // namespace plumb::sim
