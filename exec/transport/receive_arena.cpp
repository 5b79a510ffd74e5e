#include "exec/transport/receive_arena.hpp"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {

std::vector<ReceiveSlots> plan_receive_arenas(const Schedule& lowered, const PipelineCosts& costs,
                                              const LaunchPlan& launches) {
  ReceivePlaces places;
  for (std::size_t rank = 0; rank < launches.ranks.size(); ++rank) {
    auto& of_rank = places.emplace_back(lowered.actions.at(rank).size(), -1);
    for (const LaunchBatch& batch : launches.ranks[rank]) {
      for (const LaunchOperation& operation : batch.operations) {
        if (is_receive(operation.action.kind)) of_rank.at(static_cast<std::size_t>(operation.index)) = batch.place;
      }
    }
  }
  return plan_receive_slots(lowered, costs, places);
}

struct ReceiveArena::State {
  struct Slot {
    bool held = false;
    MomentPtr ready;  // when compute has let go of it
  };

  Device& device;
  ReceiveSlots plan;
  Payload memory;
  std::int64_t refused = 0;
  std::mutex mutex;         // an owner may be dropped by another rank's thread, or by autograd's
  std::vector<Slot> slots;  // under the mutex
};

ReceiveArena::ReceiveArena(Device& device, const ReceiveSlots& slots)
    : state_(new State{.device = device, .plan = slots, .memory = {}, .mutex = {}, .slots = {}}) {
  const Bytes all = arena_bytes(slots);
  if (all > Bytes{}) state_->memory = device.allocate(static_cast<std::size_t>(all.value));
  state_->slots.assign(static_cast<std::size_t>(slots.count), {.ready = state_->memory.ready});
}

Payload ReceiveArena::take(std::int32_t slot, std::size_t bytes) const {
  if (bytes == 0) return {};
  State& state = *state_;
  const auto place = static_cast<std::size_t>(slot);
  if (slot < 0 || place >= state.slots.size() || bytes > static_cast<std::size_t>(state.plan.message.value)) {
    throw RunError("", fmt::format("{} bytes do not go into slot {} of an arena with {} slots for messages of {} bytes",
                                   bytes, slot, state.slots.size(), state.plan.message.value));
  }
  MomentPtr ready;
  {
    const std::scoped_lock lock(state.mutex);
    State::Slot& taken = state.slots[place];
    if (taken.held) {
      ++state.refused;
      return {};
    }
    taken.held = true;
    ready = std::exchange(taken.ready, nullptr);
  }
  std::byte* const data = state.memory.data + place * static_cast<std::size_t>(slot_bytes(state.plan).value);
  std::shared_ptr<void> owner(data, [state = state_, place](void*) {
    try {
      MomentPtr let_go = state->device.compute().record();
      const std::scoped_lock lock(state->mutex);
      state->slots[place] = {.held = false, .ready = std::move(let_go)};
    } catch (...) {  // the device has failed: then nobody takes it again
    }
  });
  return {.owner = std::move(owner), .data = data, .size = bytes, .ready = std::move(ready)};
}

Bytes ReceiveArena::bytes() const { return {static_cast<std::int64_t>(state_->memory.size)}; }
std::int64_t ReceiveArena::refused() const { return state_->refused; }
const ReceiveSlots& ReceiveArena::plan() const { return state_->plan; }

}  // namespace plumb::exec
