// What ranks receive in a predicted step: messages, gradients that are summed, collectives inside layers.
#pragma once

#include <map>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/program/block_program.hpp"
#include "common/schedule/action.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// Of the collectives of tensor parallelism in one action: bytes that a rank receives, and how long they take; exposed
// is for how long the rank does nothing else.
struct ActionMoves {
  double received = 0;
  CommunicationTime time = {};
  bool operator==(const ActionMoves&) const = default;
};
// Of one stage, in one slice of a microbatch, those of the programs of its blocks; what comes once a step counts with
// the optimizer. A forward that is redone inside the backward counts with that.
using StageMoves = std::map<ActionKind, ActionMoves>;
// By stage, each with all its actions; of a stage without tensor parallelism empty. The plan has its costs (make_plan,
// read_plan). Throws InputError as place_block.
[[nodiscard]] std::vector<StageMoves> tensor_moves(const Plan& plan, Slice slice);

// Of what joins the parts of a vocabulary, by an event of a predicted timeline: bytes that its rank receives over a
// ring of all ranks.
[[nodiscard]] double received_of_joined(const Event& event, const Schedule& schedule);

// Writes the `beside` of sums in buckets: how long before a rank has nothing else to do the first bucket could start,
// as a run tells it. Where the event begins with the backward (all ranks of a layout are simulated) it has that
// already. The timeline as for count_received.
void tell_beside(Timeline& timeline, const Plan& plan);

// Writes each rank's `received_bytes` and `by_axis` from the events of the timeline's step: of a message its bytes, and
// of one that was scattered what the tensor group gathers; of a sum over P data-parallel ranks and replicas of the
// pipeline 2(P−1)/P of the gradients' (a ring's), the pipeline's where replicas alone take part; where n ranks share
// one copy of the states (n−1)/n of all that is gathered and of all that is reduced, once a step or in each action, and
// 2(R−1)/R of the own part over R copies of HSDP; of an action the moves of its stage. The timeline is one of the plan,
// of at least one step, with all its ranks. Throws InputError as place_block.
void count_received(Timeline& timeline, const Plan& plan);

}  // namespace plumb
