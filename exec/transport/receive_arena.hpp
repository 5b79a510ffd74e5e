// The memory of a rank into which planned receives go: one allocation, before the first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/graph/receive_slots.hpp"
#include "exec/device/device.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"

namespace plumb::exec {

// Of each rank, by the longest path of the plan's costs. `launches`: where messages are launched before their RECV;
// none: at it. Throws InputError as build_graph and plan_receive_slots.
[[nodiscard]] std::vector<ReceiveSlots> plan_receive_arenas(const Schedule& lowered, const PipelineCosts& costs,
                                                            const LaunchPlan& launches = {});

// Copies are the same arena; what is taken keeps it alive.
class ReceiveArena {
 public:
  // Allocates all of it at once, nothing for no slots. `device` must outlive all that is taken.
  ReceiveArena(Device& device, const ReceiveSlots& slots);

  // Of the rank's thread. `ready` comes when compute has let go of what was there before: where a run is not as
  // predicted, a receive waits for that on the device, and nobody on the host. Whoever drops the owner has put the last
  // use of the bytes into the order of compute, or has seen it end. Empty, and counted, if the slot's owner has not
  // been dropped. Throws RunError for a slot that there is not, or more bytes than it has.
  [[nodiscard]] Payload take(std::int32_t slot, std::size_t bytes) const;

  [[nodiscard]] Bytes bytes() const;           // allocated
  [[nodiscard]] std::int64_t refused() const;  // calls of take that found their slot held, since the start
  [[nodiscard]] const ReceiveSlots& plan() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace plumb::exec
