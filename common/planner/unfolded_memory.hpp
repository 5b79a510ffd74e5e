// The memory of this process that simulating all ranks of a plan takes, asked before any of it is there.
#pragma once

#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "common/base/units.hpp"
#include "common/graph/unfold.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

// At its fullest moment: the graph of all ranks, what an engine knows of its nodes, and the events of all ranks while
// they are brought into order. `folded` is the plan's graph, `size` that of the unfolded one.
[[nodiscard]] Bytes unfolded_memory(const Plan& plan, const ScheduleGraph& folded, const UnfoldedSize& size);

// What is there of it, and whom to name and what to advise where that does not suffice.
struct UnfoldingRoom {
  std::optional<Bytes> there = {};  // none: nobody knows, and nothing is refused
  std::string where = "--unfold";
  std::string hint =
      "leave --unfold out: one rank then stands for all that do the same; or take fewer data-parallel "
      "ranks, or a smaller global_batch, which has fewer microbatches";
};

// Nothing is wrong with the plan: a search that took it for one that cannot be built would find another best on a host
// with more memory.
class NoRoomHere : public InputError {
 public:
  using InputError::InputError;
};

// Throws NoRoomHere that names both amounts.
void require_room(const Plan& plan, const ScheduleGraph& folded, const UnfoldedSize& size, const UnfoldingRoom& room);

}  // namespace plumb
