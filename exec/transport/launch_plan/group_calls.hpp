// Collectives that the actions of a rank make of themselves, and where they stand among what it launches.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/layout/lane.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"

namespace plumb::exec {

// Of ranks that hold the same stage in different pipelines.
struct GroupCall {
  CommunicatorSpec of;
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  std::size_t count = 0;  // as CollectiveCall has it
  // Not empty: values of so many elements, `count` of all, as one (CollectiveCall).
  std::vector<std::size_t> bucket = {};
  // A sum of gradients beside compute: what its action puts there goes on meanwhile, and their stage's REDUCE_GRAD
  // waits for the end. All else ends within its action.
  bool beside = false;
  // Instead of one call of `count` elements as many and as long ones, one behind the other, as the stage has gradients.
  bool open = false;
  std::string what = {};  // "all-reduce of the output attention.out (site attention.out), block 3"
  bool operator==(const GroupCall&) const = default;
};

// "all-reduce of …, block 3 on tensor (ranks 0, 1)".
[[nodiscard]] std::string describe(const GroupCall& call);

[[nodiscard]] inline bool is_beside_compute(const GroupCall& call) { return call.beside; }

// Actions that make the same.
struct CallKey {
  ActionKind kind = ActionKind::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = no_microbatch;  // of one alone; else of all that have no key of their own
  friend auto operator<=>(const CallKey&, const CallKey&) = default;
};

// Of one rank: in the order in which the action makes them.
using GroupCalls = std::vector<std::shared_ptr<const GroupCall>>;
using RankCalls = std::map<CallKey, GroupCalls>;
[[nodiscard]] const GroupCalls& calls_of(const RankCalls& calls, const Action& action);

// What one rank of a run launches: its pipeline's messages, `of_pipeline`, between the ranks of its lane, and what its
// actions make. `list` is the rank's.
//
// Ranks cannot wait for each other in a circle if all of them launch what they have in common in one total order
// (launch_plan.hpp): so NCCL's user guide has it of several communicators on one device ("Using multiple NCCL
// communicators concurrently": operations in a consistent total global order; from 2.26 on NCCL_LAUNCH_ORDER_IMPLICIT
// makes the device keep the host's). The messages of a pipeline have one. A collective stands in its rank's list behind
// the messages that are launched before its action, and ranks of a group have the same list and launches but for the
// names of their lanes: all that stands at one place of a pipeline's order, of all its lanes and groups, goes before
// all that stands behind it. check_launches proves it without this argument.
[[nodiscard]] RankLaunches launches_of_rank(const RankLaunches& of_pipeline, const Lane& lane,
                                            const std::vector<Action>& list, const RankCalls& calls);

}  // namespace plumb::exec
