#include "exec/emulation/emulated_group.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "exec/emulation/polled_sleep.hpp"
#include "exec/host/pauses.hpp"

namespace plumb::exec {

EmulatedGroup::EmulatedGroup(Transport& world, std::vector<int> group, Seconds patience)
    : world_(world), group_(std::move(group)), place_(group_, world.rank()), patience_(patience) {}

void EmulatedGroup::expect_all(std::span<const ActionPart> parts) {
  std::size_t messages = 0;
  for (const ActionPart& part : parts) {
    if (part.collective >= 0) messages += part.beside ? 1 : group_.size() - 1;
  }
  world_.expect(group_[place_.before(1)], Channel::collective, 0, static_cast<int>(messages));
}

void EmulatedGroup::send() { world_.send(group_[place_.after(1)], Channel::collective, {}); }

Clock::time_point EmulatedGroup::receive() {
  return world_.receive(group_[place_.before(1)], Channel::collective, after(unpaused_now(), patience_)).arrived;
}

// Around the ring as often as there are others, each knows of one more.
void EmulatedGroup::meet() {
  for (std::size_t others = 1; others < group_.size(); ++others) {
    send();
    (void)receive();
  }
}

// What a part ends late, because a thread wakes late, is not handed on to the next.
void EmulatedGroup::run(std::span<const ActionPart> parts, const CollectiveTable& table, Clock::time_point begin) {
  expect_all(parts);
  Clock::time_point end = begin;
  for (const ActionPart& part : parts) {
    const Seconds wire = part.collective < 0 ? Seconds{} : time_of(table.at(part.collective));
    const Clock::time_point computed = after(end, part.compute);
    if (part.collective < 0) {
      end = computed;
      continue;
    }
    if (part.beside) {
      send();
      sleep_until(computed, &world_);
      end = std::max(computed, after(std::max(receive(), end), wire));
    } else {
      sleep_until(computed, &world_);
      meet();
      end = after(std::max(computed, Clock::now()), wire);
    }
    sleep_until(end, &world_);
  }
  sleep_until(end, &world_);
}

const std::vector<ActionPart>& EmulatedParts::of(int stage, ActionKind kind) const {
  const StageParts& parts = details.stages.at(static_cast<std::size_t>(stage));
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
      return parts.forward;
    case ActionKind::input_gradient:
      return parts.input_gradient;
    case ActionKind::weight_gradient:
      return parts.weight_gradient;
    case ActionKind::backward:
      return parts.backward;
    default:
      throw RunError("emulation", "an action that computes nothing has no parts");
  }
}

}  // namespace plumb::exec
