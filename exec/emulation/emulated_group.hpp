// Actions of a rank of a tensor group, part by part: pauses in place of computing, and in place of each collective, or
// step of a ring, an empty message that is on its way for the predicted time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "common/planner/unfolded.hpp"
#include "exec/device/clock.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// The ranks of a group go through equal parts in the same order. A step of a ring starts when its part does, and ends
// its time after the rank before has sent its own: a rank that is late delays the next. For a whole collective all wait
// for all. What they tell each other is no payload.
class EmulatedGroup {
 public:
  // Ascending ranks, this one among them, that a collective over these axes has: of a grid those of a row, say; of no
  // axes all of the tensor group.
  using RanksOver = std::function<std::vector<int>(Axes over)>;

  // `world`, of all ranks, must outlive this. `patience`: how long one waits for another.
  EmulatedGroup(Transport& world, RanksOver ranks, Seconds patience);

  // From `begin` on; returns when the last part has ended. Throws as Transport::receive, and what polling throws.
  void run(std::span<const ActionPart> parts, const CollectiveTable& table, Clock::time_point begin);

 private:
  // Neighbours on a ring of so many.
  struct Ring {
    int before = 0;
    int after = 0;
    std::size_t size = 1;
  };
  [[nodiscard]] const Ring& ring(Axes over);
  // Of an action at once: what is granted before it is sent leaves at once.
  void expect_all(std::span<const ActionPart> parts, const CollectiveTable& table);
  // To the next rank, and what the one before has sent: when it had come.
  void send(const Ring& to);
  [[nodiscard]] Clock::time_point receive(const Ring& from);
  // Nobody goes on before all have come.
  void meet(const Ring& all);

  Transport& world_;
  RanksOver ranks_;
  Seconds patience_;
  std::map<std::uint16_t, Ring> rings_ = {};  // by the bits of their axes, once they were needed
};
// Of a rank of a plan's layout.
[[nodiscard]] EmulatedGroup::RanksOver ranks_over_axes(const Layout& layout, int rank);

// What the actions of a plan's stages do so, and how long it takes.
struct EmulatedParts {
  explicit EmulatedParts(const Plan& plan) : details(unfolding_details(plan)) {}

  [[nodiscard]] const std::vector<ActionPart>& of(int stage, ActionKind kind) const;

  UnfoldingDetails details;
};

}  // namespace plumb::exec
