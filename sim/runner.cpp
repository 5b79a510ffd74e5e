#include "sim/runner.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "sim/engine.hpp"

namespace plumb::sim {
namespace {

std::string describe(const Node& node) { return "rank " + std::to_string(node.rank) + ": " + to_string(node.action); }

void require_runnable(const ScheduleGraph& graph, const Platform& platform) {
  const auto on_platform = [&](int rank) { return rank >= 0 && rank < platform.ranks; };
  for (const Node& node : graph.nodes) {
    const bool folded = is_folded(node);
    const bool between_ranks = !folded && (node.kind == NodeKind::transfer || node.kind == NodeKind::collective ||
                                           (node.kind == NodeKind::host_copy && node.peer >= 0));
    if (!std::isfinite(node.duration.value) || node.duration.value < 0) {
      throw InputError(describe(node), "its duration must be zero or more seconds");
    }
    if (!between_ranks && !folded && node.kind != NodeKind::compute && node.kind != NodeKind::optimizer) {
      throw InputError(describe(node), "copies to the host and resharding are not simulated yet");
    }
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
    if (node.kind == NodeKind::compute || node.kind == NodeKind::optimizer || is_folded(node)) {
      return engine_.compute(id, node.rank, node.duration);
    }
    const Seconds flowing = node.bytes / port_between(platform_, node.peer, node.rank).bandwidth;
    const Seconds latency = {std::max(0.0, (node.duration - flowing).value)};
    engine_.transfer(id, node.peer, node.rank, node.bytes, latency);
    if (node.kind == NodeKind::collective) {
      parts_[id] = 2;
      engine_.transfer(id, node.rank, node.peer, node.bytes, latency);
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
    std::ranges::stable_partition(nodes, [this](NodeId id) { return waits_for_[id] == 0; });
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
  std::vector<NodeId> waits_for_;
  std::vector<std::uint8_t> parts_;  // activities of a node that are still under way
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
