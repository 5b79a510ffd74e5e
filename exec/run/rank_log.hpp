// What each rank wrote down while it ran, and how that becomes one measured timeline.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/host/host_clock.hpp"
#include "exec/transport/times_within.hpp"

namespace plumb::exec {

// Times are seconds on the steady clock that the ranks of a host share. `start` of a receive is when the rank began to
// wait, its `end` when the message was there, which may be earlier.
struct RankStep {
  Seconds start;              // when the rank left the barrier before the step
  std::vector<Event> events;  // in the order of the rank's list
  Bytes peak_bytes;           // 0: not measured
  Bytes received_bytes;
  Bytes received_in_tensor = {};  // of these, by collectives of the tensor group and of ranks in it,
  Bytes received_in_data = {};    // and of the ranks that train the same stage on other data
  TimesWithin within = {};        // of its actions, on collectives; on devices nothing
  double loss = 0;                // on the rank of the last stage
  double gradient_norm = 0;       // of the whole gradient before it is clipped, on every rank; 0: it is not
  std::vector<Bytes> held = {};   // by the rank when each of the events was done; empty: not measured
  bool operator==(const RankStep&) const = default;
};

struct RankLog {
  int rank = 0;
  std::vector<RankStep> steps;
  Bytes arena_bytes = {};            // that receives of a device have, planned before the run; 0: none was
  std::int64_t receives_beside = 0;  // of all steps: that found their slot of it held, and got memory beside it
  bool operator==(const RankLog&) const = default;
};

// The actions that a rank did last, with their times: for an error behind them. Empty: none.
[[nodiscard]] std::string describe_last(const RankStep& step);

// For Transport::gather: text that reads back to the same bits. `parse_rank_log` throws RunError for anything else.
[[nodiscard]] std::string to_text(const RankLog& log);
[[nodiscard]] RankLog parse_rank_log(std::string_view text);

// From the clock of the rank's host to that of rank 0's. How long the rank waited stays: it is no moment.
void turn_to_rank_0(RankLog& log, const HostClock& clock);

// The step's losses: the mean over the ranks that train on different data, each with those of all its microbatches.
// `logs` by rank.
[[nodiscard]] std::vector<double> losses_of(const Plan& plan, const Schedule& lowered,
                                            const std::vector<RankLog>& logs);

// The logs of all ranks, by rank and on rank 0's clock, as one timeline of measured steps: a step's time counts from
// its first action (at the latest from when the last rank left the barrier); a receive starts when its sender handed
// the message over; a sum of gradients spans what all its ranks saw. The ranks are those of the plan's layout. Its
// memory is that of step `first`, what its actions spend on collectives the mean from that on.
[[nodiscard]] Timeline merge_logs(const Plan& plan, const Schedule& lowered, const std::vector<RankLog>& logs,
                                  const std::string& producer, std::size_t first = 0);

}  // namespace plumb::exec
