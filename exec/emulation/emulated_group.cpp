#include "exec/emulation/emulated_group.hpp"

#include <algorithm>
#include <utility>

#include "common/graph/unfolded_parts.hpp"
#include "common/placement/mesh.hpp"
#include "exec/emulation/polled_sleep.hpp"
#include "exec/host/pauses.hpp"

namespace plumb::exec {

EmulatedGroup::EmulatedGroup(Transport& world, RanksOver ranks, Seconds patience)
    : world_(world), ranks_(std::move(ranks)), patience_(patience) {}

const EmulatedGroup::Ring& EmulatedGroup::ring(Axes over) {
  const auto [found, is_new] = rings_.try_emplace(over.bits);
  if (!is_new) return found->second;
  const std::vector<int> group = ranks_(over);
  const PlaceInGroup place(group, world_.rank());
  return found->second = {.before = group[place.before(1)], .after = group[place.after(1)], .size = group.size()};
}

void EmulatedGroup::expect_all(std::span<const ActionPart> parts, const CollectiveTable& table) {
  for (const ActionPart& part : parts) {
    if (part.collective < 0) continue;
    const Ring& of = ring(table.over(part.collective));
    world_.expect(of.before, Channel::collective, 0, part.beside ? 1 : static_cast<int>(of.size) - 1);
  }
}

void EmulatedGroup::send(const Ring& to) { world_.send(to.after, Channel::collective, {}); }

Clock::time_point EmulatedGroup::receive(const Ring& from) {
  return world_.receive(from.before, Channel::collective, after(unpaused_now(), patience_)).arrived;
}

// Around the ring as often as there are others, each knows of one more.
void EmulatedGroup::meet(const Ring& all) {
  for (std::size_t others = 1; others < all.size; ++others) {
    send(all);
    (void)receive(all);
  }
}

// What a pause or a step of the ring ends late, because a thread wakes late, is not handed on to the next.
void EmulatedGroup::run(std::span<const ActionPart> parts, const CollectiveTable& table, Clock::time_point begin) {
  expect_all(parts, table);
  Clock::time_point end = begin;
  for (const ActionPart& part : parts) {
    const Seconds wire = part.collective < 0 ? Seconds{} : time_of(table.at(part.collective));
    const Clock::time_point computed = after(end, part.compute);
    if (part.collective < 0) {
      end = computed;
      continue;
    }
    const Ring& of = ring(table.over(part.collective));
    if (part.beside) {
      send(of);
      sleep_until(computed, &world_);
      end = std::max(computed, after(std::max(receive(of), end), wire));
    } else {
      sleep_until(computed, &world_);
      meet(of);
      end = after(std::max(computed, Clock::now()), wire);
    }
    sleep_until(end, &world_);
  }
  sleep_until(end, &world_);
}

EmulatedGroup::RanksOver ranks_over_axes(const Layout& layout, int rank) {
  const std::vector<int> all = group(layout, rank, MeshAxis::tensor);
  Layout of_tensor;
  of_tensor.tensor = layout.tensor;
  return [all, mesh = mesh_of(of_tensor), position = static_cast<int>(position_in(all, rank))](Axes over) {
    if (is_empty(over)) return all;
    std::vector<int> some;
    for (const int member : group(mesh, position, over)) some.push_back(all[static_cast<std::size_t>(member)]);
    return some;
  };
}

const std::vector<ActionPart>& EmulatedParts::of(int stage, ActionKind kind) const {
  return parts_of(details.stages.at(static_cast<std::size_t>(stage)), kind);
}

}  // namespace plumb::exec
