#include "common/graph/memory.hpp"

#include <algorithm>
#include <map>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/schedule/weight_versions.hpp"

namespace plumb {
namespace {

void operator+=(HeldBytes& held, const HeldBytes& change) {
  held.kept += change.kept;
  held.messages += change.messages;
  held.workspace += change.workspace;
}

struct Change {
  Seconds time;
  HeldBytes held;
  Bytes weights = {};  // of versions more or less
};

class MemoryWalk {
 public:
  MemoryWalk(const ScheduleGraph& graph, const Evaluation& evaluation, const PipelineCosts& costs,
             const Schedule& schedule)
      : graph_(graph),
        evaluation_(evaluation),
        costs_(costs),
        schedule_(schedule),
        index_(index_actions(schedule)),
        version_changes_(weight_version_changes(schedule)),
        changes_(schedule.actions.size()),
        producer_end_(2 * pair_count(schedule)) {}

  std::vector<RankMemory> run() {
    for (std::size_t rank = 0; rank < graph_.rank_order.size(); ++rank) add_compute(rank);
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      look_at_stop();
      if (graph_.nodes[node].kind == NodeKind::transfer) add_transfer(node);
      if (graph_.nodes[node].kind == NodeKind::host_copy) add_eviction(node);
      if (graph_.nodes[node].action.kind == ActionKind::unshard) add_unsharded(node);
      if (joins_parts(graph_.nodes[node].action.kind)) add_joined(node);
    }
    std::vector<RankMemory> ranks;
    for (std::size_t rank = 0; rank < changes_.size(); ++rank) ranks.push_back(level_of(rank));
    return ranks;
  }

 private:
  static std::size_t pair_count(const Schedule& schedule) {
    return schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.microbatches);
  }

  // When the activation (or gradient) for the next (previous) stage was there on the producer's rank.
  Seconds& producer_end(bool forward, std::int32_t stage, std::int32_t microbatch) {
    return producer_end_[(forward ? 0 : pair_count(schedule_)) +
                         static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.microbatches) +
                         static_cast<std::size_t>(microbatch)];
  }

  bool is_redone(const Action& action) const {
    return index_.find(ActionKind::recompute, action.stage, action.microbatch) != nowhere;
  }

  void add_compute(std::size_t rank) {
    changes_[rank].reserve(3 * schedule_.actions[rank].size());
    // A rank computes one thing at a time; engines that round must not make two of them overlap.
    Seconds free_from;
    for (const NodeId node : graph_.rank_order[rank]) {
      const Action& action = graph_.nodes[node].action;
      const Seconds start = std::max(evaluation_.start[node], free_from);
      const Seconds end = std::max(evaluation_.end[node], start);
      add_versions(rank, action, start, end);
      if (action.kind == ActionKind::optimizer_step && unsharded(action) > Bytes{}) {
        changes_[rank].push_back({.time = start, .held = {}, .weights = -unsharded(action)});
      }
      if (graph_.nodes[node].kind != NodeKind::compute) continue;
      const Footprint bytes = footprint(costs_, action, is_redone(action));
      changes_[rank].push_back({start, bytes.at_start});
      changes_[rank].push_back({end, bytes.at_end});
      add_boundary(rank, action, end);
      free_from = end;
    }
  }

  // Of ranks that keep a part of the weights the whole ones are there from UNSHARD on, until STEP.
  [[nodiscard]] Bytes unsharded(const Action& action) const {
    return costs_.stages[static_cast<std::size_t>(action.stage)].data_moves.unsharded;
  }
  void add_unsharded(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (unsharded(node.action) == Bytes{}) return;
    changes_[static_cast<std::size_t>(node.rank)].push_back(
        {.time = evaluation_.start[id], .held = {}, .weights = unsharded(node.action)});
  }

  // What an update adds is there while it runs, what nothing needs any more until the backward that needed it ends.
  void add_versions(std::size_t rank, const Action& action, Seconds start, Seconds end) {
    const auto found = version_changes_.find(action);
    if (found == version_changes_.end()) return;
    const Bytes weights = costs_.stages[static_cast<std::size_t>(action.stage)].parameter_bytes * found->second;
    changes_[rank].push_back({.time = weights > Bytes{} ? start : end, .held = {}, .weights = weights});
  }

  // What the action leaves for a neighbour: on its own rank it waits there as an input; else `add_transfer` needs to
  // know since when.
  void add_boundary(std::size_t rank, const Action& action, Seconds end) {
    const bool forward = action.kind == ActionKind::forward;
    const bool gradient = makes_input_gradient(action.kind);
    const Bytes for_parts = made_for_parts(costs_, action);
    if (for_parts > Bytes{}) changes_[rank].push_back({end, {.messages = for_parts}});
    if (is_part(schedule_, action.stage)) return;
    if (forward && action.stage + 1 < stages(schedule_)) {
      producer_end(true, action.stage, action.microbatch) = end;
      if (!crosses_ranks(schedule_, action.stage, action.microbatch))
        changes_[rank].push_back({end, {.messages = boundary_of_stage(costs_, action.stage, action.microbatch)}});
    }
    if (gradient && action.stage > 0) {
      producer_end(false, action.stage, action.microbatch) = end;
      if (!crosses_ranks(schedule_, action.stage - 1, action.microbatch))
        changes_[rank].push_back({end, {.messages = boundary_of_stage(costs_, action.stage, action.microbatch)}});
    }
  }

  // Of BCAST all ranks but the one that had it have one more, of REDUCE all but the one that needs the sum one less.
  void add_joined(NodeId id) {
    const Action& action = graph_.nodes[id].action;
    if (action.kind == ActionKind::all_reduce) return;
    const Bytes bytes = action.kind == ActionKind::broadcast ? graph_.nodes[id].bytes : -graph_.nodes[id].bytes;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (rank == rank_beside_parts(schedule_, action.stage)) continue;
      changes_[static_cast<std::size_t>(rank)].push_back({evaluation_.end[id], {.messages = bytes}});
    }
  }

  void add_transfer(NodeId id) {
    const Node& node = graph_.nodes[id];
    const Action& receive = node.action;
    const Seconds made = producer_end(goes_forward(receive.kind), producer_stage(receive), receive.microbatch);
    const Seconds arrived = std::max(evaluation_.end[id], made);
    auto& sender = changes_[static_cast<std::size_t>(node.peer)];
    const Bytes sent =
        costs_.boundaries.empty() ? node.bytes : boundary_of_stage(costs_, producer_stage(receive), receive.microbatch);
    sender.push_back({made, {.messages = sent}});
    sender.push_back({arrived, {.messages = -sent}});
    changes_[static_cast<std::size_t>(node.rank)].push_back({arrived, {.messages = node.bytes}});
  }

  // Evicted activations are on both ranks while they are on their way.
  void add_eviction(NodeId id) {
    const Node& node = graph_.nodes[id];
    changes_[static_cast<std::size_t>(node.rank)].push_back({evaluation_.start[id], {.kept = node.bytes}});
    changes_[static_cast<std::size_t>(node.peer)].push_back({evaluation_.end[id], {.kept = -node.bytes}});
  }

  RankMemory level_of(std::size_t rank) {
    RankMemory memory;
    for (const int held : stages_of_rank(schedule_, static_cast<int>(rank))) {
      const auto stage = static_cast<std::size_t>(held);
      memory.parameter_bytes += costs_.stages[stage].parameter_bytes;
      memory.gradient_bytes += costs_.stages[stage].gradient_bytes;
      memory.optimizer_bytes += costs_.stages[stage].optimizer_bytes;
    }
    const Bytes fixed = memory.parameter_bytes + memory.gradient_bytes + memory.optimizer_bytes;
    memory.peak_bytes = fixed;
    memory.over_time.push_back({Seconds{}, fixed});
    std::vector<Change>& changes = changes_[rank];
    std::ranges::stable_sort(changes, {}, [](const Change& change) { return change.time; });
    const Bytes one_version = memory.parameter_bytes;
    HeldBytes held;
    Bytes more_versions;
    for (auto change = changes.begin(); change != changes.end();) {
      const Seconds time = change->time;
      for (; change != changes.end() && change->time == time; ++change) {
        held += change->held;
        more_versions += change->weights;
      }
      const Bytes level = fixed + more_versions + sum(held);
      if (level == memory.over_time.back().bytes) continue;
      if (time == memory.over_time.back().time) memory.over_time.pop_back();
      memory.over_time.push_back({time, level});
      if (level > memory.peak_bytes) {
        memory.peak_bytes = level;
        memory.peak = {.held = held, .time = time};
        memory.parameter_bytes = one_version + more_versions;
      }
    }
    memory.peak.action = running_at(rank, memory.peak.time);
    return memory;
  }

  // The compute action that runs at `time`, or else the last one before, or else the first.
  Action running_at(std::size_t rank, Seconds time) const {
    Action running;
    bool found = false;
    for (const NodeId node : graph_.rank_order[rank]) {
      if (graph_.nodes[node].kind != NodeKind::compute) continue;
      if (found && evaluation_.start[node] > time) break;
      running = graph_.nodes[node].action;
      found = true;
    }
    return running;
  }

  const ScheduleGraph& graph_;
  const Evaluation& evaluation_;
  const PipelineCosts& costs_;
  const Schedule& schedule_;
  const ActionIndex index_;
  const std::map<Action, int> version_changes_;
  std::vector<std::vector<Change>> changes_;  // per rank
  std::vector<Seconds> producer_end_;         // activations, then gradients, by stage and microbatch
};

}  // namespace

Bytes made_for_parts(const PipelineCosts& costs, const Action& action) {
  if (costs.vocabulary.parts == 0) return {};
  const int chain = chain_stages(costs);
  const bool forward = action.kind == ActionKind::forward;
  const bool gradient = makes_input_gradient(action.kind);
  const Bytes of_head = costs.vocabulary.head_broadcast.bytes;
  const Bytes of_embedding = costs.vocabulary.embedding_broadcast.bytes;
  switch (sort_of_stage(action.stage, chain, costs.vocabulary.parts)) {
    case StageSort::layers:
      if (forward && action.stage + 1 == chain) return of_head;
      return gradient && action.stage == 0 ? of_embedding : Bytes{};
    case StageSort::head:
      return gradient ? of_head : Bytes{};
    case StageSort::embedding:
      return forward ? of_embedding : Bytes{};
  }
  return {};
}

namespace {

struct Received {
  Bytes input;     // of its F
  Bytes gradient;  // of its I or B
};

// What a stage receives of others for an action's microbatch. The embedding reads numbers of tokens, the head makes the
// loss; of a divided vocabulary the stages of layers have its parts as neighbours at either end.
Received received_by(const PipelineCosts& costs, const Action& action) {
  const Bytes boundary = boundary_of_stage(costs, action.stage, action.microbatch);
  const bool first = action.stage == 0;
  const bool last = action.stage + 1 == chain_stages(costs);
  if (costs.vocabulary.parts == 0) return {first ? Bytes{} : boundary, last ? Bytes{} : boundary};
  const Bytes of_head = costs.vocabulary.head_broadcast.bytes;
  const Bytes of_embedding = costs.vocabulary.embedding_broadcast.bytes;
  switch (sort_of_stage(action.stage, chain_stages(costs), costs.vocabulary.parts)) {
    case StageSort::head:
      return {of_head, {}};
    case StageSort::embedding:
      return {{}, of_embedding};
    case StageSort::layers:
      break;
  }
  return {first ? of_embedding : boundary, last ? of_head : boundary};
}

}  // namespace

Footprint footprint(const PipelineCosts& costs, const Action& action, bool redone) {
  const SliceBytes bytes = bytes_of(costs.stages[static_cast<std::size_t>(action.stage)], action.microbatch);
  const Bytes kept = bytes.kept;
  const Bytes for_weight = bytes.kept_for_weight;
  const Bytes handed_back = bytes.gradients_left - bytes.gradients_taken;
  const auto [input, gradient] = received_by(costs, action);
  switch (action.kind) {
    case ActionKind::forward: {
      const Bytes workspace = bytes.forward_workspace;
      const Bytes freed = redone ? kept - input : Bytes{};
      return {{.kept = kept, .messages = -input, .workspace = workspace}, {.kept = -freed, .workspace = -workspace}};
    }
    case ActionKind::recompute: {
      const Bytes workspace = bytes.forward_workspace;
      return {{.kept = kept - input, .workspace = workspace}, {.workspace = -workspace}};
    }
    case ActionKind::input_gradient: {
      const Bytes workspace = bytes.input_gradient_workspace;
      return {{.messages = -gradient, .workspace = workspace},
              {.kept = for_weight - kept + handed_back, .workspace = -workspace}};
    }
    case ActionKind::weight_gradient: {
      const Bytes workspace = bytes.weight_gradient_workspace;
      return {{.workspace = workspace}, {.kept = -for_weight, .workspace = -workspace}};
    }
    default: {  // B
      const Bytes workspace = backward_workspace(bytes);
      return {{.messages = -gradient, .workspace = workspace}, {.kept = -kept + handed_back, .workspace = -workspace}};
    }
  }
}

std::vector<RankMemory> memory_over_time(const ScheduleGraph& graph, const Evaluation& evaluation,
                                         const PipelineCosts& costs, const Schedule& schedule) {
  require_well_formed(schedule);
  if (costs.stages.size() != schedule.rank_of_stage.size() || evaluation.start.size() != graph.nodes.size() ||
      graph.rank_order.size() != schedule.actions.size()) {
    throw InputError("memory", "graph, evaluation, costs and schedule are not of one plan");
  }
  return MemoryWalk(graph, evaluation, costs, schedule).run();
}

}  // namespace plumb
