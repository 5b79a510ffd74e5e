// What happened, or is predicted to happen, when: one type for the simulator and the executor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/graph/held_memory.hpp"
#include "common/layout/layout.hpp"
#include "common/schedule/schedule.hpp"
#include "common/timeline/communication_time.hpp"

namespace plumb {

enum class TimelineSource : std::uint8_t { predicted, measured };

// One action on one rank. Of a receive: `start` is when the sender handed the message over, `end` when it was there;
// `waited` is the part of that in which the receiving rank had nothing else to do. Of a measured sum of gradients in
// buckets beside the backward: `start` is when the ranks had nothing else to do, `beside` how long before that the
// first bucket could start. Of a STEP whose states stand on the host: `bytes` go there and back, and copies take
// `waited`, each way by itself, of its time or beside its update. Of F, and I or B, whose activations stand on the host
// in between: `bytes` go there, or come back, and copies take `waited`, of its time or beside it.
struct Event {
  Action action;
  int rank = 0;
  int peer = -1;  // of a receive the sender, of a send (if it is known) the receiver, else the other rank of the two
  Seconds start;
  Seconds end;
  Seconds waited;
  Bytes bytes;
  Seconds beside = {};
  bool operator==(const Event&) const = default;
};

// What a rank receives in a step, by what it is for: collectives of its tensor group, sums of gradients with ranks that
// train on other data, and all else: messages, evictions, sums with another stage or replica of its pipeline.
struct AxisTraffic {
  Bytes tensor;
  Bytes data;
  Bytes pipeline;
  // Within its actions, which take longer for what is exposed: collectives of its tensor group, and weights that they
  // gather and gradients that they reduce for themselves. None: not known, as of a run on devices.
  std::optional<CommunicationTime> tensor_within = {};
  std::optional<CommunicationTime> data_within = {};
  bool operator==(const AxisTraffic&) const = default;
};

struct RankSummary {
  // States are the plan's own, also of a run, whose peak alone is measured: activations are what that has beside them.
  Bytes parameter_bytes;
  Bytes gradient_bytes;
  Bytes optimizer_bytes;
  Bytes activation_bytes;
  Bytes peak_bytes;
  Bytes received_bytes;                     // payload per step
  std::optional<PeakMoment> peak;           // of a prediction: what the activations are, and when
  std::optional<AxisTraffic> by_axis = {};  // of what is received
  Bytes host_bytes = {};                    // that it keeps on its host, beside the device's
  Bytes host_copied_bytes = {};             // there and back, per step
  bool operator==(const RankSummary&) const = default;
};

// One optimizer step; times count from its start (all ranks start it together).
struct StepTimeline {
  std::vector<Event> events;  // by rank, then start, then action
  Seconds duration;           // until the last event ends
  bool operator==(const StepTimeline&) const = default;
};

// Of one pipeline, or of all ranks of a layout: a run is of all its ranks, a prediction of one for each pipeline rank.
struct Timeline {
  TimelineSource source = TimelineSource::predicted;
  std::string producer;  // "simgrid", "path", "plumb-exec local cpu"
  std::string plan_name;
  std::string plan_digest;   // of the plan's schedule, split and shapes: two timelines of one plan agree
  std::string costs_digest;  // of the costs the prediction used
  std::int64_t tokens_per_step = 0;
  Flops model_flops;    // of a step
  Schedule schedule;    // lowered: the diff rebuilds the graph from it
  PipelineCosts costs;  // that were predicted
  // Of whose ranks `ranks` and the events are, where these are more than the schedule's; none: they are the schedule's.
  std::optional<Layout> layout = {};
  std::vector<RankSummary> ranks;
  std::vector<StepTimeline> steps;  // a prediction has one
  // Of a measurement on several hosts: times of two ranks compare within so much. 0: one clock gave all.
  Seconds clock_uncertainty = {};
  std::vector<int> clock_of_rank = {};  // the same number: the same clock; empty: not known, each may have its own
  Bytes memory_limit = {};              // what a rank of the plan's device may use; 0: not known
  FlopsPerSecond peak_flops = {};       // of the devices of all ranks of the layout; 0: not known
  std::string layout_name = {};         // "pp8·tp4"; empty, as the next: not known
  std::string split = {};               // the layers of each stage, "[6, 6]"
  // Per rank, over the first step: drawn in a trace as counters, and not read back from it. Of a measurement what
  // LibTorch's allocators had given out when each action was done.
  std::vector<std::vector<MemoryPoint>> memory = {};
  bool operator==(const Timeline&) const = default;
};

// The step whose duration is the (lower) median, the first of equal ones. Throws InputError when there are no steps.
[[nodiscard]] const StepTimeline& median_step(const Timeline& timeline);

struct FullestRank {
  int rank = 0;
  RankSummary summary = {};
};

// The rank with the highest peak; the first of equal ones.
[[nodiscard]] FullestRank fullest_rank(const std::vector<RankSummary>& ranks);

// Of each axis the most that a rank receives in a step; none where that of a rank is not known. A prediction of one
// rank for each pipeline stage and a run of all ranks of a layout compare by it.
[[nodiscard]] std::optional<AxisTraffic> most_received(const Timeline& timeline);

// Ranks that its events may name, and which of the schedule's ranks one of them is.
[[nodiscard]] int ranks_of(const Timeline& timeline);
[[nodiscard]] int pipeline_rank(const Timeline& timeline, int rank);

// How much a time between two ranks may be off: nothing where they read one clock.
[[nodiscard]] Seconds uncertainty_between(const Timeline& timeline, int rank, int other);

// Puts the events in the order above and sets the duration to the last end.
[[nodiscard]] StepTimeline ordered_step(std::vector<Event> events);

// What a rank does at the same time as other things: one track each.
enum class Track : std::uint8_t { compute, receive_forward, receive_backward, collective, send, host_copy };
inline constexpr int track_count = 6;

[[nodiscard]] Track track_of(ActionKind kind);
[[nodiscard]] std::string_view track_name(Track track);

}  // namespace plumb
