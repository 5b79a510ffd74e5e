#include "common/study/sensitivity.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/near_ties.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/graph/longest_chains.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/study/step_model.hpp"

namespace plumb {
namespace {

constexpr double tenth_less = 0.9;
constexpr double tenth_more = 1.1;

std::string of_stage(std::string_view kind, int stage) {
  return std::string(kind) + " of stage " + std::to_string(stage);
}

std::pair<Moved, std::string> class_of(const Node& node, const PipelineCosts& costs) {
  switch (node.kind) {
    case NodeKind::compute:
    case NodeKind::optimizer:
      return {Moved::stage, of_stage(letters(node.action.kind), node.action.stage)};
    case NodeKind::collective:
      if (node.action.kind == ActionKind::clip_gradients) return {Moved::message, "norm of the gradient"};
      if (joins_parts(node.action.kind)) return {Moved::message, "exchanges of the vocabulary's parts"};
      return {Moved::message, node.action.kind == ActionKind::reduce_tied
                                  ? std::string("reduction of the tied embedding")
                                  : of_stage("gradient reduction", node.action.stage)};
    default:
      break;
  }
  const std::string what = node.kind == NodeKind::transfer ? "messages" : "evicted activations";
  const bool inside = on_one_machine(costs, node.peer, node.rank);
  return {Moved::message, what + (inside ? " inside a machine" : " between machines")};
}

// Classes of nodes, by name.
class Classes {
 public:
  Classes(const ScheduleGraph& graph, const Evaluation& evaluation, const PipelineCosts& costs) {
    std::vector<Seconds> on_path(graph.nodes.size());
    for (const NodeId id : critical_path(graph, evaluation)) on_path[id] = evaluation.end[id] - evaluation.start[id];
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const Node& node = graph.nodes[id];
      const double share = evaluation.makespan.value > 0 ? on_path[id] / evaluation.makespan : 0;
      const auto [moved, name] = class_of(node, costs);
      add(moved, name, id, share);
      if (moved == Moved::stage) {
        add(Moved::kind, std::string(letters(node.action.kind)) + " of all stages", id, share);
      }
    }
  }

  struct Members {
    std::vector<NodeId> nodes = {};
    double slope = 0;
  };
  [[nodiscard]] const std::map<std::pair<Moved, std::string>, Members>& all() const { return all_; }

 private:
  void add(Moved moved, const std::string& name, NodeId id, double share) {
    Members& members = all_[{moved, name}];
    members.nodes.push_back(id);
    members.slope += share;
  }

  std::map<std::pair<Moved, std::string>, Members> all_;
};

// Times and bytes: an engine that shares links looks at both.
void speed_up(Node& node) {
  node.duration = node.duration * tenth_less;
  node.bytes = {std::llround(static_cast<double>(node.bytes.value) * tenth_less)};
}

// The step evaluated anew with each class of nodes and each number moved.
class Movements {
 public:
  Movements(const Plan& plan, const StepEngine& engine, const std::function<void(int, int)>& progress)
      : plan_(plan),
        engine_(engine),
        progress_(progress),
        graph_(build_graph(lowered_schedule(plan), plan.costs)),
        nominal_(engine(graph_, plan.costs, {}).evaluation),
        classes_(graph_, nominal_, plan.costs),
        of_machine_(has_predicted_costs(plan) ? numbers_of(plan.cluster.machine, offloads(plan.training.offload))
                                              : std::vector<MachineNumber>{}),
        of_network_(has_predicted_costs(plan) ? numbers_of(plan.cluster) : std::vector<ClusterNumber>{}),
        total_(static_cast<int>(classes_.all().size() + of_machine_.size() + of_network_.size())) {}

  [[nodiscard]] std::vector<Sensitivity> all() && {
    add_classes();
    if (!of_machine_.empty() || !of_network_.empty()) add_numbers();
    return std::move(found_);
  }

 private:
  void add(Sensitivity found, const Evaluation& evaluation) {
    if (nominal_.makespan.value > 0) found.change = evaluation.makespan / nominal_.makespan - 1;
    found_.push_back(std::move(found));
    if (progress_) progress_(static_cast<int>(found_.size()), total_);
  }

  void add_classes() {
    const LongestChains chains(graph_, nominal_);
    const auto part = [&](Seconds of) { return nominal_.makespan.value > 0 ? of / nominal_.makespan : 0; };
    for (const auto& [key, members] : classes_.all()) {
      const std::vector<Node> before = graph_.nodes;
      for (const NodeId id : members.nodes) speed_up(graph_.nodes[id]);
      const ChainShare share = chains.share_of(members.nodes);
      add({.moved = key.first,
           .name = key.second,
           .slope = members.slope,
           .if_faster = part(share.least),
           .if_slower = part(share.most)},
          engine_(graph_, plan_.costs, {}).evaluation);
      graph_.nodes = before;
    }
  }

  void add_numbers() {
    const StepModel model(plan_);
    const Seconds now = model.step(plan_.cluster);
    const auto factor = [](const auto& number) { return number.more_is_faster ? tenth_more : tenth_less; };
    for (const MachineNumber& number : of_machine_) {
      Cluster cluster = plan_.cluster;
      cluster.machine = with_factor(std::move(cluster.machine), number, factor(number));
      add_number(model, now, number, cluster);
    }
    for (const ClusterNumber& number : of_network_) {
      add_number(model, now, number, with_factor(plan_.cluster, number, factor(number)));
    }
  }

  template <typename Number>
  void add_number(const StepModel& model, Seconds now, const Number& number, const Cluster& moved) {
    Plan changed = plan_;
    changed.cluster = moved;
    changed.costs = predicted_costs(changed);
    const double sign = number.more_is_faster ? -1 : 1;
    const StepModel::Sides sides = model.elasticities(number, now);
    add({.moved = Moved::number,
         .name = number.name,
         .slope = sign * sides.both,
         .if_faster = sign * (number.more_is_faster ? sides.more : sides.less),
         .if_slower = sign * (number.more_is_faster ? sides.less : sides.more)},
        engine_(build_graph(model.lowered(), changed.costs), changed.costs, {}).evaluation);
  }

  const Plan& plan_;
  const StepEngine& engine_;
  const std::function<void(int, int)>& progress_;
  ScheduleGraph graph_;
  Evaluation nominal_;
  Classes classes_;
  std::vector<MachineNumber> of_machine_;
  std::vector<ClusterNumber> of_network_;
  int total_;
  std::vector<Sensitivity> found_ = {};
};

}  // namespace

bool is_tied(const Sensitivity& entry) {
  constexpr double by_rounding = 1e-6;  // of differences of 0.1%, and of curves that are no straight lines
  constexpr double by_curve = 1e-2;
  const double apart = std::abs(entry.if_slower - entry.if_faster);
  return apart > (entry.moved == Moved::number ? by_curve : by_rounding);
}

bool move_alike(const Sensitivity& a, const Sensitivity& b) {
  return without_last_bits(a.change) == without_last_bits(b.change) &&
         without_last_bits(a.if_slower) == without_last_bits(b.if_slower);
}

bool has_predicted_costs(const Plan& plan) {
  try {
    require_predicted_costs(plan, "");
  } catch (const InputError&) {
    return false;
  }
  return true;
}

std::vector<Sensitivity> sensitivities(const Plan& plan, const StepEngine& engine,
                                       const std::function<void(int, int)>& progress) {
  std::vector<Sensitivity> result = Movements(plan, engine, progress).all();
  const auto amounts = [](const Sensitivity& entry) {
    return std::tuple(without_last_bits(entry.change), without_last_bits(entry.if_slower),
                      without_last_bits(entry.slope));
  };
  std::ranges::stable_sort(result, [&](const Sensitivity& a, const Sensitivity& b) {
    if (amounts(a) != amounts(b)) return amounts(a) > amounts(b);
    return std::pair(a.moved, a.name) < std::pair(b.moved, b.name);
  });
  return result;
}

}  // namespace plumb
