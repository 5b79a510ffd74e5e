// Where each message of a rank is received into: slots of one arena per rank, given by the lifetimes that the graph
// knows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/evaluate.hpp"

namespace plumb {

// Of one rank. All slots are as large as its largest message.
struct ReceiveSlots {
  std::vector<std::int32_t> slot_of;  // by place in the rank's list, of RECV_F and RECV_B; -1: nothing is received
  std::int32_t count = 0;
  Bytes message;
  bool operator==(const ReceiveSlots&) const = default;
};

// From slot to slot: where CUDA's allocators begin (and LibTorch's on the host, which need less), so that bytes lie in
// a slot as they would alone.
[[nodiscard]] Bytes slot_bytes(const ReceiveSlots& slots);
[[nodiscard]] Bytes arena_bytes(const ReceiveSlots& slots);

// By rank and place in its list: before which action the host launches what the RECV there receives.
using ReceivePlaces = std::vector<std::vector<std::int32_t>>;

// A receive has its slot from when its message may start, in the evaluation, or earlier if its launch comes before an
// action that has started by then, until W or B of its stage and microbatch has ended: what W needs may hold a gradient
// (as the linear map that it comes to first does) and an activation (LibTorch's graph does, behind what W needs of it).
// One that is evicted keeps it as long: when its bytes have left, no list says. The fewest slots with which no message
// starts later than in the evaluation, since as many are needed at one time; of those that are free the one that has
// been so longest, ties by number. Without `places` a message is launched at its RECV. Times are rounded to
// nanoseconds. Parcels of evictions have no slots: only stages know their sizes. Of each rank, pure. Throws InputError
// when graph, evaluation, schedule and places are not of one plan.
[[nodiscard]] std::vector<ReceiveSlots> plan_receive_slots(const Schedule& lowered, const ScheduleGraph& graph,
                                                           const Evaluation& evaluation,
                                                           const ReceivePlaces& places = {});

// In the evaluation by the longest path: what a run is planned with, and what is predicted of it. Throws InputError for
// a schedule that never ends as well.
[[nodiscard]] std::vector<ReceiveSlots> plan_receive_slots(const Schedule& lowered, const PipelineCosts& costs,
                                                           const ReceivePlaces& places = {});

}  // namespace plumb
