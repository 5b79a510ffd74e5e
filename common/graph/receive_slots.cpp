#include "common/graph/receive_slots.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/nanoseconds.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

constexpr Bytes slot_alignment{512};
const char* const not_of_one_plan = "schedule, graph, evaluation and places are not of one plan";

// A moment of a rank: when, and at which place of its list. What ends at one time and place with what begins there
// ends after it, since the host launches a message before the action at its place.
using RankMoment = std::pair<Nanoseconds, std::int32_t>;

struct Lifetime {
  RankMoment begin;
  RankMoment end;
  std::int32_t receive = 0;  // its place
};

class SlotPlanner {
 public:
  SlotPlanner(const Schedule& lowered, const ScheduleGraph& graph, const Evaluation& evaluation,
              const ReceivePlaces& places)
      : lowered_(lowered), graph_(graph), evaluation_(evaluation), places_(places), index_(index_actions(lowered)) {}

  std::vector<ReceiveSlots> run() {
    find_nodes();
    std::vector<ReceiveSlots> ranks;
    for (std::size_t rank = 0; rank < lowered_.actions.size(); ++rank) ranks.push_back(colour(rank));
    return ranks;
  }

 private:
  static constexpr NodeId none = ~NodeId{0};

  void find_nodes() {
    node_at_.assign(static_cast<std::size_t>(index_.first_of_rank.back()), none);
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
      const Node& of = graph_.nodes[node];
      if (of.kind != NodeKind::compute && of.kind != NodeKind::transfer) continue;
      const std::int32_t position = in_range(lowered_, of.action) ? index_.find(of.action) : nowhere;
      if (position == nowhere) throw InputError("receive slots", not_of_one_plan);
      node_at_[static_cast<std::size_t>(position)] = node;
    }
    for (std::size_t rank = 0; rank < lowered_.actions.size(); ++rank) {
      for (std::size_t place = 0; place < lowered_.actions[rank].size(); ++place) {
        const ActionKind kind = lowered_.actions[rank][place].kind;
        const bool has_node = is_compute(kind) || is_receive(kind);
        if (has_node && node_at(rank, place) == none) throw InputError("receive slots", not_of_one_plan);
      }
    }
  }

  [[nodiscard]] NodeId node_at(std::size_t rank, std::size_t place) const {
    return node_at_[static_cast<std::size_t>(index_.first_of_rank[rank]) + place];
  }

  [[noreturn]] static void refuse(std::size_t rank, const Action& action, const std::string& problem) {
    throw InputError("receive slots", "rank " + std::to_string(rank) + ": " + to_string(action) + " " + problem,
                     "plumb schedule check names what is wrong with a schedule");
  }

  // Of the first compute action that stands at a place or behind it.
  [[nodiscard]] std::vector<Nanoseconds> compute_starts(std::size_t rank) const {
    const std::size_t count = lowered_.actions[rank].size();
    std::vector<Nanoseconds> starts(count + 1, rounded_to_nanoseconds(evaluation_.makespan));
    for (std::size_t place = count; place-- > 0;) {
      const bool computes = is_compute(lowered_.actions[rank][place].kind);
      starts[place] = computes ? rounded_to_nanoseconds(evaluation_.start[node_at(rank, place)]) : starts[place + 1];
    }
    return starts;
  }

  // Where the last action stands that may read what is received.
  [[nodiscard]] std::int32_t last_use(const Action& receive) const {
    const std::int32_t last = index_.find(ActionKind::weight_gradient, receive.stage, receive.microbatch);
    return last == nowhere ? index_.find_gradient(receive.stage, receive.microbatch) : last;
  }

  [[nodiscard]] std::vector<Lifetime> lifetimes(std::size_t rank, Bytes& largest) const {
    const std::vector<Action>& actions = lowered_.actions[rank];
    const std::vector<Nanoseconds> starts = compute_starts(rank);
    const std::int32_t first = index_.first_of_rank[rank];
    std::vector<Lifetime> all;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (!is_receive(actions[i].kind)) continue;
      const NodeId transfer = node_at(rank, i);
      const std::int32_t last = last_use(actions[i]) - first;
      const auto receive = static_cast<std::int32_t>(i);
      const std::int32_t place = places_.empty() ? receive : places_[rank][i];
      if (last < receive || static_cast<std::size_t>(last) >= actions.size()) {
        refuse(rank, actions[i], "is not read by an action behind it");
      }
      if (place < 0 || place > receive) refuse(rank, actions[i], "is launched at no place up to its own");
      largest = std::max(largest, graph_.nodes[transfer].bytes);
      const Nanoseconds launched = starts[static_cast<std::size_t>(place)];
      all.push_back(
          {.begin = {std::min(rounded_to_nanoseconds(evaluation_.start[transfer]), launched), place},
           .end = {rounded_to_nanoseconds(evaluation_.end[node_at(rank, static_cast<std::size_t>(last))]), last},
           .receive = receive});
    }
    std::ranges::sort(all, {}, [](const Lifetime& of) { return std::tuple(of.begin, of.receive); });
    return all;
  }

  // In the order of their begins: of an interval graph that takes as many colours as overlap at most.
  [[nodiscard]] ReceiveSlots colour(std::size_t rank) const {
    ReceiveSlots slots{.slot_of = std::vector<std::int32_t>(lowered_.actions[rank].size(), -1), .message = {}};
    const std::vector<Lifetime> all = lifetimes(rank, slots.message);
    if (slots.message == Bytes{}) return slots;
    std::set<std::pair<RankMoment, std::int32_t>> held;  // until when, which slot
    std::deque<std::int32_t> free;                       // the one that has been so longest first
    for (const Lifetime& of : all) {
      while (!held.empty() && held.begin()->first < of.begin) {
        free.push_back(held.begin()->second);
        held.erase(held.begin());
      }
      if (free.empty()) free.push_back(slots.count++);
      const std::int32_t slot = free.front();
      free.pop_front();
      held.emplace(of.end, slot);
      slots.slot_of[static_cast<std::size_t>(of.receive)] = slot;
    }
    return slots;
  }

  const Schedule& lowered_;
  const ScheduleGraph& graph_;
  const Evaluation& evaluation_;
  const ReceivePlaces& places_;
  const ActionIndex index_;
  std::vector<NodeId> node_at_;  // by position through all lists; of compute and RECV
};

}  // namespace

Bytes slot_bytes(const ReceiveSlots& slots) {
  return (slots.message + slot_alignment - Bytes{1}) / slot_alignment.value * slot_alignment.value;
}

Bytes arena_bytes(const ReceiveSlots& slots) { return slot_bytes(slots) * std::int64_t{slots.count}; }

std::vector<ReceiveSlots> plan_receive_slots(const Schedule& lowered, const ScheduleGraph& graph,
                                             const Evaluation& evaluation, const ReceivePlaces& places) {
  require_well_formed(lowered);
  bool fit = evaluation.start.size() == graph.nodes.size() && graph.rank_order.size() == lowered.actions.size() &&
             (places.empty() || places.size() == lowered.actions.size());
  for (std::size_t rank = 0; fit && rank < places.size(); ++rank) {
    fit = places[rank].size() == lowered.actions[rank].size();
  }
  if (!fit) throw InputError("receive slots", not_of_one_plan);
  return SlotPlanner(lowered, graph, evaluation, places).run();
}

std::vector<ReceiveSlots> plan_receive_slots(const Schedule& lowered, const PipelineCosts& costs,
                                             const ReceivePlaces& places) {
  const ScheduleGraph graph = build_graph(lowered, costs);
  return plan_receive_slots(lowered, graph, evaluate(graph), places);
}

}  // namespace plumb
