#include "common/graph/schedule_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "common/graph/exchange_steps.hpp"
#include "common/graph/joined_parts.hpp"
#include "common/graph/topological_order.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {

namespace {

// Builds in two passes over the lists: nodes with their ids, then edges.
class GraphBuilder {
 public:
  GraphBuilder(const Schedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        index_(index_actions(schedule)),
        joined_(schedule, costs),
        pair_begins_(pair_begins(schedule, index_)),
        reduction_of_stage_(schedule.rank_of_stage.size(), no_node) {}

  ScheduleGraph build() {
    add_nodes();
    std::vector<bool> joins_next(graph_.nodes.size());
    for (std::size_t position = 0; position < node_at_.size(); ++position) {
      if (pair_begins_[position]) joins_next[node_at_[position]] = true;
    }
    const bool joins_parts_to_steps = is_synchronous() && schedule_.vocabulary_barriers > 0;
    steps_ = exchange_steps(graph_, std::move(joins_next),
                            {.joins_recompute_and_backward = is_synchronous(),
                             .joins_forward_and_backward = is_synchronous() && schedule_.chunks > 1,
                             .layers = joins_parts_to_steps ? stages(schedule_) : 0});
    add_edges();
    if (!settle_exchanges()) {
      throw InputError("schedule " + schedule_.name, describe_cycle(graph_),
                       is_synchronous() ? "software: {exchange: asynchronous}, another schedule, or microbatches in "
                                          "multiples of the " +
                                              std::to_string(schedule_.ranks) + " ranks"
                                        : "a rank's list must not use what is made only behind it");
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] void refuse(std::size_t rank, const Action& action, const std::string& problem) const {
    throw InputError("schedule", fmt::format("rank {}: {}: {}", rank, to_string(action), problem));
  }

  void add_nodes() {
    graph_.ranks = schedule_.ranks;
    graph_.rank_order.resize(schedule_.actions.size());
    std::size_t total = 0;
    for (const auto& list : schedule_.actions) total += list.size();
    node_at_.reserve(total);
    graph_.nodes.reserve(total);
    for (std::size_t rank = 0; rank < schedule_.actions.size(); ++rank) {
      for (const Action& action : schedule_.actions[rank]) {
        look_at_stop();
        node_at_.push_back(add_node(rank, action));
      }
    }
    shorten_pairs();
    // The second rank's half of a reduction is the first one's node.
    for (std::size_t position = 0; position < node_at_.size(); ++position) {
      if (node_at_[position] == second_half_) node_at_[position] = reduction_of(action_at(position));
    }
  }

  // The two actions of an overlapped pair share its time by their own lengths.
  void shorten_pairs() {
    if (costs_.hidden_in_pairs <= 0) return;
    for (std::size_t position = 0; position + 1 < node_at_.size(); ++position) {
      if (!pair_begins_[position]) continue;
      Seconds& first = graph_.nodes[node_at_[position]].duration;
      Seconds& second = graph_.nodes[node_at_[position + 1]].duration;
      const double share = share_in_pair(first, second, costs_.hidden_in_pairs);
      first = first * share;
      second = second * share;
    }
  }

  const Action& action_at(std::size_t position) const {
    const auto rank = static_cast<std::size_t>(index_.rank_at(static_cast<std::int32_t>(position)));
    return schedule_.actions[rank][position - static_cast<std::size_t>(index_.first_of_rank[rank])];
  }

  NodeId& reduction_of(const Action& action) {
    if (action.kind == ActionKind::reduce_tied) return tied_;
    return reduction_of_stage_[static_cast<std::size_t>(action.stage)];
  }

  // Sends have no node, nor have the sending half of an eviction and the second half of a reduction.
  NodeId add_node(std::size_t rank, const Action& action) {
    if (!in_range(schedule_, action)) refuse(rank, action, "no such stage or microbatch");
    Node node;
    node.action = action;
    node.rank = static_cast<std::int32_t>(rank);
    if (is_compute(action.kind)) {
      node.kind = NodeKind::compute;
    } else if (is_receive(action.kind)) {
      set_transfer(node);
    } else if (is_eviction(action.kind)) {
      if (sends_activations(schedule_, node.rank, action)) return no_node;
      set_eviction(node);
    } else if (action.kind == ActionKind::optimizer_step) {
      node.kind = NodeKind::optimizer;
    } else if (is_reduction(action.kind)) {
      const bool tied = action.kind == ActionKind::reduce_tied;
      if (tied ? action.stage != 0 : rank_in_replica(schedule_, 0, action.stage) != node.rank) return second_half_;
      set_reduction(node);
    } else if (action.kind == ActionKind::unshard) {
      node.kind = NodeKind::collective;  // with data-parallel ranks, of which the graph has one
    } else if (action.kind == ActionKind::clip_gradients) {
      if (clip_ != no_node) return clip_;
      set_clip(node);
    } else if (joins_parts(action.kind)) {
      if (const NodeId known = joined_.known(action); known != no_node) return known;
      joined_.set(node, graph_);
    } else if (is_send(action.kind)) {
      return no_node;
    } else {
      refuse(rank, action, "is not supported yet");
    }
    node.bytes = payload(node, costs_);
    node.duration = time_alone(node, costs_);
    const auto id = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(node);
    if (is_reduction(action.kind)) reduction_of(action) = id;
    if (action.kind == ActionKind::clip_gradients) clip_ = id;
    if (joins_parts(action.kind)) joined_.remember(action, id);
    if (occupies_rank(node)) graph_.rank_order[rank].push_back(id);
    return id;
  }

  void set_transfer(Node& node) const {
    const int sender_stage = producer_stage(node.action);
    if (sender_stage < 0 || sender_stage >= stages(schedule_)) {
      refuse(static_cast<std::size_t>(node.rank), node.action, "no stage sends this");
    }
    node.kind = NodeKind::transfer;
    node.peer = rank_of(schedule_, sender_stage, node.action.microbatch);
  }

  // The activations of one microbatch go to the partner, or come back.
  void set_eviction(Node& node) const {
    const bool evicts = node.action.kind == ActionKind::evict;
    const std::int32_t sent = evicts ? index_.find(node.action) : index_.find_partner(node.action);
    if (sent == nowhere) refuse(static_cast<std::size_t>(node.rank), node.action, "its other half is missing");
    node.kind = NodeKind::host_copy;
    node.peer = index_.rank_at(sent);
  }

  // Two ranks exchange their whole gradients at once, each way on its own (full duplex), and add. Of data-parallel
  // ranks this graph has one: the collective with the others is its cost.
  void set_reduction(Node& node) const {
    const bool tied = node.action.kind == ActionKind::reduce_tied;
    node.kind = NodeKind::collective;
    if (!tied && replicas(schedule_) == 1) return;
    node.peer = tied ? schedule_.rank_of_stage.back() : rank_in_replica(schedule_, 1, node.action.stage);
  }

  // One of all ranks; a rank alone has only its copies, of which this graph has one.
  void set_clip(Node& node) {
    node.kind = NodeKind::collective;
    if (schedule_.ranks == 1) return;
    node.group = static_cast<std::int32_t>(graph_.groups.size());
    node.flow = flow_index(graph_, {.latency = costs_.gradient_clipping});
    std::vector<int>& ranks = graph_.groups.emplace_back();
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (!stages_of_rank(schedule_, rank).empty()) ranks.push_back(rank);
    }
  }

  void add_edge(NodeId from, NodeId to) { edges_.emplace_back(from, to); }

  void add_edges() {
    edges_.reserve(2 * graph_.nodes.size());
    std::int32_t position = 0;
    for (std::size_t rank = 0; rank < schedule_.actions.size(); ++rank) {
      NodeId previous = no_node;   // that occupied the rank
      NodeId reduction = no_node;  // that the rank's next optimizer step waits for
      NodeId gathering = no_node;  // of weights, the last, that nothing behind it has waited for
      for (const Action& action : schedule_.actions[rank]) {
        look_at_stop();
        const NodeId node = node_at_[static_cast<std::size_t>(position++)];
        if (is_reduction(action.kind)) {
          if (node == no_node) refuse(rank, action, "the other rank has no part in it");
          if (previous != no_node) add_edge(previous, node);
          if (reduction != no_node) add_edge(reduction, node);  // one stream has them all
          reduction = node;
        } else if (action.kind == ActionKind::clip_gradients) {
          if (previous != no_node) add_edge(previous, node);
          if (reduction != no_node) add_edge(reduction, node);
          reduction = node;
        } else if (action.kind == ActionKind::unshard) {
          if (previous != no_node) add_edge(previous, node);
          if (gathering != no_node) add_edge(gathering, node);
          gathering = node;
        } else if (joins_parts(action.kind)) {
          continue;
        } else if (is_receive(action.kind)) {
          add_transfer(rank, action, node);
        } else if (is_eviction(action.kind)) {
          add_eviction(rank, action, previous);
        } else if (node != no_node) {
          if (previous != no_node) add_edge(previous, node);
          if (gathering != no_node) add_edge(std::exchange(gathering, no_node), node);
          if (is_compute(action.kind)) add_input(rank, action, position - 1, previous);
          if (action.kind == ActionKind::optimizer_step && reduction != no_node) {
            add_edge(std::exchange(reduction, no_node), node);
          }
          previous = node;
        }
      }
    }
    for (const auto& [from, to] : joined_.edges(index_, node_at_)) add_edge(from, to);
  }

  // Of the action that makes the stage's activation, or its gradient.
  std::int32_t position_of(bool forward, std::int32_t stage, std::int32_t microbatch) const {
    return forward ? index_.find(ActionKind::forward, stage, microbatch) : index_.find_gradient(stage, microbatch);
  }

  // An overlapped pair takes in all its inputs before it starts and hands on all its results when it ends.
  NodeId producer_node(std::int32_t position) const {
    return steps_.last[node_at_[static_cast<std::size_t>(position)]];
  }
  NodeId consumer_node(std::int32_t position) const {
    return steps_.first[node_at_[static_cast<std::size_t>(position)]];
  }

  [[nodiscard]] bool is_synchronous() const { return costs_.exchange == PipelineExchange::synchronous; }

  // Producer → transfer → consumer.
  void add_transfer(std::size_t rank, const Action& receive, NodeId node) {
    const std::int32_t producer = position_of(goes_forward(receive.kind), producer_stage(receive), receive.microbatch);
    const std::int32_t consumer = position_of(goes_forward(receive.kind), receive.stage, receive.microbatch);
    if (producer == nowhere) refuse(rank, receive, "nothing makes what it receives");
    if (consumer == nowhere) refuse(rank, receive, "nothing uses what it receives");
    const NodeId made = producer_node(producer);
    const NodeId used = consumer_node(consumer);
    add_edge(made, node);
    add_edge(node, used);
    if (!is_synchronous()) return;
    exchanged_.push_back({.transfer = node, .made = made, .used = used, .before = steps_.before[used], .next = used});
  }

  // Receives stand just before the step that uses them, as Megatron-LM's 1F1B posts them; with several stages on a
  // rank, or where ranks would wait for each other in a circle, where they are sent. False if there is still a circle.
  bool settle_exchanges() {
    const auto settles = [this, own = edges_.size()] {
      edges_.resize(own);
      for (const ExchangedMessage& message : exchanged_) add_exchange(message);
      graph_.edges = ScheduleGraph::Edges(boost::edges_are_unsorted_multi_pass, edges_.begin(), edges_.end(),
                                          static_cast<NodeId>(graph_.nodes.size()));
      return sort_topologically(graph_);
    };
    if (!is_synchronous()) return settles();
    bool settled = schedule_.chunks <= 1 && settles();
    if (!settled) {
      receive_in_lockstep(graph_, steps_, exchanged_);
      settled = settles();
    }
    if (settled) share_ports();
    return settled;
  }

  // Both ranks have ended the step before, and neither goes on without the other.
  void add_exchange(const ExchangedMessage& message) {
    if (message.before != no_node) add_edge(message.before, message.transfer);
    if (message.next != message.used) add_edge(message.transfer, message.next);
    if (steps_.after[message.made] != no_node) add_edge(message.transfer, steps_.after[message.made]);
  }

  // Messages of one batch over the same port take turns: of one step's sends, or of one step's receives.
  void share_ports() {
    const auto port = [&](const ExchangedMessage& message) {
      const Node& node = graph_.nodes[message.transfer];
      return !on_one_machine(costs_, node.peer, node.rank);
    };
    struct Messages {
      std::array<int, 2> sent{};  // by port
      std::array<int, 2> received{};
    };
    std::vector<Messages> of_node(graph_.nodes.size());
    for (const ExchangedMessage& message : exchanged_) {
      const std::size_t way = port(message) ? 1 : 0;
      ++of_node[message.made].sent.at(way);
      ++of_node[message.next].received.at(way);
    }
    for (const ExchangedMessage& message : exchanged_) {
      const std::size_t way = port(message) ? 1 : 0;
      const int turns = std::max(of_node[message.made].sent.at(way), of_node[message.next].received.at(way));
      Node& node = graph_.nodes[message.transfer];
      node.duration = node.duration * turns;
      // Simulators make them share the port by themselves; each has its own start.
      if (turns <= 1) continue;
      const TransferCost alone = transfer_between(costs_, node.peer, node.rank);
      const Seconds latency = (alone.latency + gathering_time(costs_, node.action.microbatch)) * turns;
      // Over a boundary with a way of its own nothing flows that could take turns: all of it is a delay.
      node.flow = flow_index(graph_, {.latency = costs_.boundaries.empty() ? latency : node.duration});
    }
  }

  // What stands before the sending half → EVICT → LOAD → the backward; LOAD also waits for what stands before both its
  // halves: the partner sends it then, and before that the stage's own rank has no room for it.
  void add_eviction(std::size_t rank, const Action& action, NodeId previous) {
    const bool evicts = action.kind == ActionKind::evict;
    const bool own = rank_of(schedule_, action.stage, action.microbatch) == static_cast<int>(rank);
    const std::int32_t received = evicts ? index_.find_partner(action) : index_.find(action);
    if (received == nowhere) refuse(rank, action, "its other half is missing");
    const NodeId node = node_at_[static_cast<std::size_t>(received)];
    if (previous != no_node && (own || !evicts)) add_edge(previous, node);
    if (evicts || !own) return;
    const std::int32_t evicted = index_.find_partner({ActionKind::evict, action.stage, action.microbatch});
    const std::int32_t consumer = index_.find_gradient(action.stage, action.microbatch);
    if (evicted == nowhere || consumer == nowhere) refuse(rank, action, "its EVICT or its backward is missing");
    add_edge(node_at_[static_cast<std::size_t>(evicted)], node);
    add_edge(node, consumer_node(consumer));
  }

  // Within a rank a boundary is an edge; between ranks the receive must be there.
  void add_input(std::size_t rank, const Action& action, std::int32_t position, NodeId previous) {
    const bool forward = goes_forward(action.kind);
    const bool gradient = makes_input_gradient(action.kind);
    const int neighbour = producer_stage(action);
    if (is_part(schedule_, action.stage)) return;
    if (!(forward || gradient) || neighbour < 0 || neighbour == stages(schedule_)) return;
    if (crosses_ranks(schedule_, std::min(neighbour, action.stage), action.microbatch)) {
      const ActionKind receive = forward ? ActionKind::receive_forward : ActionKind::receive_backward;
      if (index_.find(receive, action.stage, action.microbatch) == nowhere) {
        refuse(rank, action, "its input is never received: lower the schedule first");
      }
      return;
    }
    const std::int32_t producer = position_of(forward, neighbour, action.microbatch);
    if (producer == nowhere) refuse(rank, action, "nothing makes its input");
    const NodeId source = producer_node(producer);
    const NodeId target = consumer_node(position);
    if (source != previous && source != target) add_edge(source, target);
  }

  static constexpr NodeId second_half_ = no_node - 1;

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  const ActionIndex index_;
  JoinedParts joined_;
  const std::vector<bool> pair_begins_;
  ScheduleGraph graph_;
  std::vector<NodeId> node_at_;  // by position through all lists
  std::vector<std::pair<NodeId, NodeId>> edges_;
  ExchangeSteps steps_;
  std::vector<ExchangedMessage> exchanged_;  // of synchronous exchanges
  NodeId tied_ = no_node;
  NodeId clip_ = no_node;
  std::vector<NodeId> reduction_of_stage_;  // of the replicas' gradients
};

}  // namespace

ScheduleGraph build_graph(const Schedule& lowered, const PipelineCosts& costs) {
  require_well_formed(lowered);
  if (costs.stages.size() != lowered.rank_of_stage.size()) {
    throw InputError("schedule", fmt::format("{} stages, but costs for {}", all_stages(lowered), costs.stages.size()));
  }
  return GraphBuilder(lowered, costs).build();
}

std::int32_t flow_index(ScheduleGraph& graph, const Flow& flow) {
  const auto found = std::ranges::find(graph.flows, flow);
  const auto index = static_cast<std::int32_t>(found - graph.flows.begin());
  if (found == graph.flows.end()) graph.flows.push_back(flow);
  return index;
}

std::vector<Seconds> durations(const ScheduleGraph& graph) {
  std::vector<Seconds> result;
  result.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) result.push_back(node.duration);
  return result;
}

}  // namespace plumb
