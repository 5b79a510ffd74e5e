// Where the time of a step went, from its events alone: the same formulas for predicted and for measured steps.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// compute + exposed_communication + idle = the step's duration.
struct RankStatistics {
  Seconds compute;                // the rank computes: F, B, I, W, R, optimizer
  Seconds communication;          // at least one message to it, or collective of it, is on its way
  Seconds exposed_communication;  // of that, while it does not compute: it waits
  Seconds idle;                   // it neither computes nor is anything on its way to it
  bool operator==(const RankStatistics&) const = default;
};

// Bubbles as in common/graph/evaluate.hpp: over F, B, I, W and R (the optimizer's step counts as neither busy nor
// span).
struct StepStatistics {
  Seconds iteration;
  double bubble_makespan_fraction = 0;  // (duration − mean busy) / duration
  double bubble_span_fraction = 0;      // (longest rank's own span − mean busy) / that span
  std::vector<RankStatistics> ranks;
  bool operator==(const StepStatistics&) const = default;
};

// A collective is on its way from when the last of its ranks entered it: before, the others wait for that rank's
// compute.
[[nodiscard]] StepStatistics step_statistics(const StepTimeline& step, int ranks);

// What ranks tell each other, by what it is for. As actions of its own: sums of gradients (REDUCE_GRAD, REDUCE_TIED and
// CLIP's norm; in buckets from when the first one could start), weights that are gathered (UNSHARD), and messages with
// evictions. Within other actions, whose times have what is exposed: AxisTraffic.
enum class CommunicationUse : std::uint8_t { gradients, weights, messages, data_within, tensor_within };
inline constexpr std::array communication_uses{CommunicationUse::gradients, CommunicationUse::weights,
                                               CommunicationUse::messages, CommunicationUse::data_within,
                                               CommunicationUse::tensor_within};
// "gradient sums", "weight gathers", "messages", "gathers and sums within actions", "tensor groups within actions"
[[nodiscard]] std::string_view name_of(CommunicationUse use);
[[nodiscard]] std::string_view key_of(CommunicationUse use);  // "gradients", "data_within"
[[nodiscard]] constexpr bool is_within_actions(CommunicationUse use) {
  return use == CommunicationUse::data_within || use == CommunicationUse::tensor_within;
}

// At the place of each use, the mean of the timeline's ranks: what several ranks of a layout took compares with a
// prediction of one rank for each stage. `step`: of the timeline; what is within actions is of all its steps. Throws
// InputError for an event of another rank.
using CommunicationTimes = std::array<CommunicationTime, communication_uses.size()>;
[[nodiscard]] CommunicationTimes communication_times(const Timeline& timeline, const StepTimeline& step);

// Per rank, how much of its exposed time may have been idle or the reverse: when a message from another host was handed
// over is known as well as the clocks of the hosts agree. The sum of the two is on the rank's own clock.
[[nodiscard]] std::vector<Seconds> exposure_uncertainty(const Timeline& timeline, const StepTimeline& step);

// 0 for a step without duration.
[[nodiscard]] double tokens_per_s(const Timeline& timeline, const StepTimeline& step);

}  // namespace plumb
