// The arena that messages of a rank are received into, and its plan under the host's own order of launches.
#include "exec/transport/receive_arena.hpp"

#include <algorithm>
#include <map>

#include "common/base/error.hpp"
#include "exec/device/host_device.hpp"
#include "exec/run/messages.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/receive_buffers.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/run/evicting.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::AsyncDevice;

namespace {

PipelineCosts costs_of(const Schedule& lowered, bool even) {
  PipelineCosts costs =
      even_costs(stages(lowered),
                 {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}, .hidden_in_pairs = 0.5});
  costs.boundary_bytes = {64};
  for (std::size_t stage = 0; !even && stage < costs.stages.size(); ++stage) {
    costs.stages[stage].forward = costs.stages[stage].forward * (1 + 0.13 * static_cast<double>((stage * 7) % 5));
  }
  return costs;
}

// A rank's host, action by action: how many launches find their slot held by what the list has not let go of yet.
int found_held(const Schedule& lowered, std::size_t rank, const LaunchPlan& plan, const ReceiveSlots& slots) {
  const auto& list = lowered.actions[rank];
  std::map<std::int32_t, Action> holder;  // by slot
  int held = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    for (; next < plan.ranks[rank].size() && plan.ranks[rank][next].place <= static_cast<std::int32_t>(i); ++next) {
      for (const LaunchOperation& operation : plan.ranks[rank][next].operations) {
        if (!is_receive(operation.action.kind)) continue;
        const std::int32_t slot = slots.slot_of[static_cast<std::size_t>(operation.index)];
        held += holder.try_emplace(slot, operation.action).second ? 0 : 1;
      }
    }
    if (i == list.size()) break;
    if (list[i].kind != ActionKind::weight_gradient && list[i].kind != ActionKind::backward) continue;
    std::erase_if(holder, [&](const auto& of) {
      return of.second.stage == list[i].stage && of.second.microbatch == list[i].microbatch;
    });
  }
  return held;
}

}  // namespace

TEST_CASE("no launch of any schedule comes before the host has let go of its slot") {
  const int ranks = GENERATE(2, 4, 8);
  const bool even = GENERATE(false, true);
  const bool overlap = GENERATE(false, true);
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{2, 2 * ranks, ranks};
    if (!applies(entry, grid)) continue;
    ScheduleShape shape = shape_for(entry, grid);
    shape.overlap = overlap;
    Schedule schedule;
    try {
      schedule = generate_schedule(entry.name, shape);
    } catch (const InputError&) {
      if (overlap) continue;  // not every schedule has pairs
      throw;
    }
    const Schedule lowered = lower(schedule, {});
    const PipelineCosts costs = costs_of(lowered, even);
    const LaunchPlan plan = plan_launches(lowered, costs);
    const std::vector<ReceiveSlots> slots = plan_receive_arenas(lowered, costs, plan);
    const std::vector<ReceiveSlots> at_receives = plan_receive_arenas(lowered, costs);
    for (std::size_t rank = 0; rank < slots.size(); ++rank) {
      INFO(entry.name << ", p = " << ranks << (even ? ", even" : "") << (overlap ? ", pairs" : "") << ", rank "
                      << rank);
      CHECK(found_held(lowered, rank, plan, slots[rank]) == 0);
      CHECK(slots[rank].count >= at_receives[rank].count);
      // Where nothing runs as a pair, launches come when the graph has the messages start.
      if (lowered.overlapped.empty()) CHECK(slots[rank].count == at_receives[rank].count);
    }
  }
}

TEST_CASE("slots are apart, as aligned as the device's memory, and of one allocation") {
  AsyncDevice device;
  {
    const ReceiveArena arena(device, {.slot_of = {0, 1, 2}, .count = 3, .message = {100}});
    CHECK(arena.bytes() == Bytes{3 * 512});
    CHECK(device.allocations() == 1);
    std::vector<Payload> taken;
    for (const std::int32_t slot : {2, 0, 1}) taken.push_back(arena.take(slot, 100));
    CHECK(taken[1].data + 512 == taken[2].data);
    CHECK(taken[1].data + 1024 == taken[0].data);
    CHECK(taken[0].size == 100);
    CHECK(device.allocations() == 1);
    CHECK(device.in_use() == 1);
    CHECK(arena.take(0, 0).data == nullptr);
    CHECK_THROWS_WITH(arena.take(3, 100),
                      ContainsSubstring("100 bytes do not go into slot 3 of an arena with 3 slots"));
    CHECK_THROWS_WITH(arena.take(-1, 100), ContainsSubstring("slot -1"));
    CHECK_THROWS_WITH(arena.take(1, 101), ContainsSubstring("for messages of 100 bytes"));
    CHECK(arena.refused() == 0);
  }
  CHECK(device.in_use() == 0);
  const ReceiveArena none(device, {});
  CHECK(none.bytes() == Bytes{});
  CHECK(device.allocations() == 1);
}

TEST_CASE("a slot is taken again once its owner is dropped, and ready once compute has done what it had been given") {
  AsyncDevice device;
  const ReceiveArena arena(device, {.slot_of = {0, 0}, .count = 1, .message = {8}});
  std::mutex held;
  Payload first = arena.take(0, 8);
  CHECK(arena.take(0, 8).data == nullptr);
  CHECK(arena.refused() == 1);
  std::unique_lock lock(held);
  device.compute().run([&held] { const std::scoped_lock until_released(held); });  // the last use
  std::byte* const data = first.data;
  first = {};
  Payload second = arena.take(0, 8);
  CHECK(second.data == data);
  REQUIRE(second.ready);
  CHECK_FALSE(second.ready->has_come());  // the host has not waited for it
  lock.unlock();
  dynamic_cast<const test::AsyncMoment&>(*second.ready).wait();
  CHECK(arena.refused() == 1);
}

TEST_CASE("planned messages go into their slots in order, others and those whose slot is held into the list") {
  AsyncDevice device;
  const ReceiveArena arena(device, {.slot_of = {0, 1}, .count = 2, .message = {8}});
  ReceiveBuffers buffers(device);
  buffers.plan(3, Channel::backward, arena, std::vector<std::int32_t>{1, 0, 1});
  const Payload other = buffers.take(3, Channel::forward, 8);  // of another direction: not planned
  CHECK(device.allocations() == 2);
  const Payload first = buffers.take(3, Channel::backward, 8);
  const Payload second = buffers.take(3, Channel::backward, 8);
  CHECK(first.data == second.data + 512);
  CHECK(device.allocations() == 2);
  const Payload third = buffers.take(3, Channel::backward, 8);  // while the first has slot 1
  CHECK(arena.refused() == 1);
  CHECK(device.allocations() == 3);
  CHECK(third.data != first.data);
  CHECK(buffers.take(3, Channel::backward, 8).data != nullptr);  // none is planned any more
}

TEST_CASE("an arena of another list is refused") {
  const Schedule lowered = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 2}), {});
  const auto transports = make_local_transports(2);
  const auto device = make_host_device();
  const ReceiveArena arena(*device, {.slot_of = {0}, .count = 1, .message = {8}});
  CHECK_THROWS_WITH(announce_receives(lowered, {Bytes{8}}, &arena, *transports[0]), ContainsSubstring("another list"));
  CHECK_THROWS_WITH(peer_channel_of(lowered, {ActionKind::send_forward, 1, 0}),
                    ContainsSubstring("there is no stage 2"));
  const PeerChannel up = peer_channel_of(lowered, {ActionKind::send_backward, 1, 0});
  CHECK(up == PeerChannel{.peer = 0, .channel = Channel::backward});
}
