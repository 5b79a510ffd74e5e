// What joins the parts of a divided vocabulary in a graph: only the graph's builder includes it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/graph/schedule_graph.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {

// One node for all ranks, each of which has an action of its own for it.
class JoinedParts {
 public:
  JoinedParts(const Schedule& schedule, const PipelineCosts& costs) : schedule_(schedule), costs_(costs) {}

  // The node of that action, if an earlier rank has made it.
  [[nodiscard]] NodeId known(const Action& action) const;
  // Makes a node of it, of the group of all ranks.
  void set(Node& node, ScheduleGraph& graph);
  void remember(const Action& action, NodeId node) { nodes_[shared_name(action)] = node; }

  // What they wait for and what waits for them; nothing where there are no parts. `node_at`: by position in `index`.
  [[nodiscard]] std::vector<std::pair<NodeId, NodeId>> edges(const ActionIndex& index,
                                                             const std::vector<NodeId>& node_at) const;

 private:
  [[nodiscard]] Action shared_name(Action action) const;

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  std::map<Action, NodeId> nodes_;
  std::int32_t group_ = -1;
};

// Of such an action what it moves.
[[nodiscard]] const JoinCost& join_cost(const PipelineCosts& costs, const Action& action);

}  // namespace plumb
