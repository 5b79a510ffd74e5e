// Slots of received messages against a naive count: how many must be there at one time, and that no two that share a
// slot do.
#include "common/graph/receive_slots.hpp"

#include <algorithm>
#include <map>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

namespace {

constexpr double tie = 0.5e-9;  // seconds: what is nearer counts as one time

// Uneven on purpose, or all alike, so that much ends when something else begins.
PipelineCosts costs_of(const Schedule& lowered, bool even) {
  PipelineCosts costs = even_costs(
      stages(lowered), {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}, .hop = {1e-4}});
  costs.boundary_bytes = {1000};
  for (std::size_t stage = 0; !even && stage < costs.stages.size(); ++stage) {
    costs.stages[stage].forward = costs.stages[stage].forward * (1 + 0.13 * static_cast<double>((stage * 7) % 5));
    costs.stages[stage].weight_gradient =
        costs.stages[stage].weight_gradient * (1 + 0.11 * static_cast<double>((stage * 3) % 4));
  }
  return costs;
}

struct Held {
  std::size_t receive = 0;  // its place
  std::size_t last = 0;     // where the last action stands that reads it
  double from = 0;
  double until = 0;
};

// Of one rank, from the definition: the message's start, the end of W or B.
std::vector<Held> held_on(std::size_t rank, const Schedule& lowered, const ScheduleGraph& graph,
                          const Evaluation& times) {
  std::map<Action, std::pair<double, double>> ran;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    ran[graph.nodes[node].action] = {times.start[node].value, times.end[node].value};
  }
  const auto& list = lowered.actions[rank];
  std::vector<Held> all;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!is_receive(list[i].kind)) continue;
    Held held{.receive = i, .from = ran.at(list[i]).first};
    for (std::size_t k = i; k < list.size(); ++k) {
      if (list[k].stage != list[i].stage || list[k].microbatch != list[i].microbatch) continue;
      if (list[k].kind != ActionKind::backward && list[k].kind != ActionKind::weight_gradient) continue;
      held.last = k;
      held.until = ran.at(list[k]).second;
    }
    all.push_back(held);
  }
  return all;
}

bool together(const Held& a, const Held& b) { return a.from < b.until - tie && b.from < a.until - tie; }

std::int32_t most_at_once(const std::vector<Held>& all) {
  std::int64_t most = 0;
  for (const Held& one : all) {
    most = std::max(most, std::count_if(all.begin(), all.end(), [&](const Held& other) {
                      return other.from <= one.from + tie && one.from < other.until - tie;
                    }));
  }
  return static_cast<std::int32_t>(most);
}

Schedule one_f_one_b() { return lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 4}), {}); }

}  // namespace

TEST_CASE("the slots of a rank are as many as messages must be there at one time, and none is shared at one") {
  const int ranks = GENERATE(2, 4, 8);
  const int chunks = GENERATE(1, 2);
  const bool even = GENERATE(false, true);
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{chunks, 2 * ranks, ranks};
    if (!applies(entry, grid)) continue;
    INFO(entry.name << ", p = " << ranks << ", " << chunks << " chunks" << (even ? ", even" : ""));
    const Schedule lowered = lower(generate_schedule(entry.name, shape_for(entry, grid)), {});
    const PipelineCosts costs = costs_of(lowered, even);
    const ScheduleGraph graph = build_graph(lowered, costs);
    const Evaluation times = evaluate(graph);
    const std::vector<ReceiveSlots> planned = plan_receive_slots(lowered, graph, times);
    REQUIRE(planned.size() == lowered.actions.size());
    for (std::size_t rank = 0; rank < planned.size(); ++rank) {
      const std::vector<Held> all = held_on(rank, lowered, graph, times);
      const ReceiveSlots& slots = planned[rank];
      INFO("rank " << rank);
      CHECK(slots.count == most_at_once(all));
      CHECK(slots.message == (all.empty() ? Bytes{} : Bytes{1000}));
      const auto used = std::ranges::count_if(slots.slot_of, [](std::int32_t slot) { return slot >= 0; });
      CHECK(static_cast<std::size_t>(used) == all.size());
      bool shared = false;
      for (std::size_t a = 0; a < all.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          if (slots.slot_of[all[a].receive] != slots.slot_of[all[b].receive]) continue;
          const bool apart = all[b].last < all[a].receive || all[a].last < all[b].receive;
          shared = shared || together(all[a], all[b]) || !apart;
        }
      }
      CHECK_FALSE(shared);
    }
    CHECK(plan_receive_slots(lowered, graph, times) == planned);
  }
}

// Two ranks, F, I and W of one unit each, no hop. Rank 1: RECV at 0-1 F0 1-2, B0 2-4, then F and B in turn: message k
// starts when rank 0 has ended its F k (at 1, 2, 5, 8), and its bytes are read until 4, 7, 10, 13.
TEST_CASE("by hand: with 1F1B the last of two ranks has two activations at a time") {
  const Schedule lowered = one_f_one_b();
  PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  costs.boundary_bytes = {513};
  const ScheduleGraph graph = build_graph(lowered, costs);
  const std::vector<ReceiveSlots> planned = plan_receive_slots(lowered, graph, evaluate(graph));
  CHECK(planned[1].count == 2);
  std::vector<std::int32_t> slots;
  for (const std::int32_t slot : planned[1].slot_of) {
    if (slot >= 0) slots.push_back(slot);
  }
  CHECK(slots == std::vector<std::int32_t>{0, 1, 0, 1});
  CHECK(slot_bytes(planned[1]) == Bytes{1024});  // from one multiple of 512 to the next
  CHECK(arena_bytes(planned[1]) == Bytes{2048});
  CHECK(planned[0].count == 1);  // a gradient is read as soon as it is there
}

TEST_CASE("an early launched receive holds its slot from its launch") {
  const Schedule lowered = one_f_one_b();
  const PipelineCosts costs = costs_of(lowered, true);
  const ScheduleGraph graph = build_graph(lowered, costs);
  const Evaluation times = evaluate(graph);
  ReceivePlaces places;
  for (const auto& list : lowered.actions) places.emplace_back(list.size(), 0);  // all before the first action
  const std::vector<ReceiveSlots> planned = plan_receive_slots(lowered, graph, times, places);
  CHECK(planned[0].count == 4);
  CHECK(planned[1].count == 4);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < places[rank].size(); ++i) places[rank][i] = static_cast<std::int32_t>(i);
  }
  CHECK(plan_receive_slots(lowered, graph, times, places) == plan_receive_slots(lowered, graph, times));
}

TEST_CASE("actions that take no time share no slot that the host has not let go of") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{2, 8, 4};
    if (!applies(entry, grid)) continue;
    const Schedule lowered = lower(generate_schedule(entry.name, shape_for(entry, grid)), {});
    PipelineCosts costs = even_costs(stages(lowered), {});
    costs.boundary_bytes = {8};
    const ScheduleGraph graph = build_graph(lowered, costs);
    const Evaluation times = evaluate(graph);
    const std::vector<ReceiveSlots> planned = plan_receive_slots(lowered, graph, times);
    for (std::size_t rank = 0; rank < planned.size(); ++rank) {
      std::map<std::int32_t, std::size_t> held_until;  // by slot, in the order of the list
      bool free = true;
      for (const Held& of : held_on(rank, lowered, graph, times)) {
        const auto [before, first] = held_until.try_emplace(planned[rank].slot_of[of.receive], of.last);
        free = free && (first || before->second < of.receive);
        before->second = of.last;
      }
      INFO(entry.name << ", rank " << rank);
      CHECK(free);
    }
  }
}

TEST_CASE("messages without bytes have no slots, and plans that do not belong together are refused") {
  const Schedule lowered = one_f_one_b();
  PipelineCosts costs = costs_of(lowered, true);
  costs.boundary_bytes = {0};
  const ScheduleGraph graph = build_graph(lowered, costs);
  const Evaluation times = evaluate(graph);
  for (const ReceiveSlots& slots : plan_receive_slots(lowered, graph, times)) CHECK(arena_bytes(slots) == Bytes{});
  CHECK_THROWS_WITH(plan_receive_slots(lowered, graph, times, {{0}}), ContainsSubstring("not of one plan"));
  Schedule other = lowered;
  other.actions.emplace_back();
  ++other.ranks;
  CHECK_THROWS_AS(plan_receive_slots(other, graph, times), InputError);
  Schedule unread = lowered;
  std::erase_if(unread.actions[1], [](const Action& action) { return action.kind == ActionKind::backward; });
  std::erase_if(unread.actions[1], [](const Action& action) { return action.kind == ActionKind::forward; });
  CHECK_THROWS_AS(plan_receive_slots(unread, graph, times), InputError);
  // A graph that lacks an action of the list, and one that has more microbatches than it.
  Schedule shorter = lowered;
  for (auto& list : shorter.actions) {
    std::erase_if(list, [](const Action& action) { return action.microbatch == 0; });
  }
  for (const bool lacks : {true, false}) {
    const Schedule& planned = lacks ? lowered : shorter;
    const ScheduleGraph of_other = build_graph(lacks ? shorter : lowered, costs);
    CHECK_THROWS_WITH(plan_receive_slots(planned, of_other, evaluate(of_other)), ContainsSubstring("not of one plan"));
  }
  Schedule fewer = lowered;
  for (auto& list : fewer.actions) {
    std::erase_if(list, [&](const Action& action) { return action.microbatch + 1 == lowered.microbatches; });
  }
  --fewer.microbatches;
  CHECK_THROWS_WITH(plan_receive_slots(fewer, graph, times), ContainsSubstring("not of one plan"));
  ReceivePlaces places;
  for (const auto& list : lowered.actions) places.emplace_back(list.size(), 1000);
  CHECK_THROWS_WITH(plan_receive_slots(lowered, graph, times, places), ContainsSubstring("RECV_"));
}
