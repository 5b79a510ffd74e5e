// Why a measured step differs from the predicted one, as a sum that closes.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// The change of the step's time when one class of predicted durations gives way to the measured ones.
struct DiffCause {
  std::string cause;                 // "slower F of stage 3", "transfers", "sends", "order", "host gaps", "residual"
  Seconds seconds;                   // > 0: the measured step is longer for it
  std::vector<std::string> actions;  // the largest contributors: "rank 2: 3F7 +1.2 ms"
  bool within_clocks = false;        // the clocks of the hosts do not agree well enough to tell it from nothing
  bool operator==(const DiffCause&) const = default;
};

// Times between hosts that each differ by no more than the hosts' clocks may be apart: their sum is no finding while it
// is no larger itself, else one that has no single action to name.
inline constexpr const char* clocks_cause = "within the clocks' uncertainty";
inline constexpr const char* between_hosts_cause = "messages between hosts, each within the clocks' uncertainty";

// What stands beside a cause that is within the clocks.
inline constexpr const char* no_finding = "too little to tell from nothing";

// "The clocks of the hosts agree within 50.00 µs: …"; one sentence.
[[nodiscard]] std::string clocks_sentence(Seconds clock_uncertainty);

struct TimelineDiff {
  Seconds predicted;
  Seconds measured;
  Seconds replay;
  std::vector<DiffCause> causes;  // in order of substitution; their seconds add up to measured − predicted
  Seconds clock_uncertainty;      // of both timelines: times of ranks on different hosts compare within so much

  // Gaps as t / t_ref − 1, and 0 without a reference. The measured step is the reference: −10% is a prediction that is
  // a tenth too short.
  [[nodiscard]] double prediction_gap() const;
  [[nodiscard]] double replay_gap() const;

  // A step begins with the first rank and ends with the last, which may be on different hosts.
  [[nodiscard]] bool step_within_clocks() const;
  [[nodiscard]] bool replay_within_clocks() const;
};

// Substitutes on one shared graph: measured compute (stage by stage, F, I/B, W, R apart), then transfers, then
// what their senders took to hand them over, then the order in which ranks acted, then host gaps; what is left is the
// residual. Of several hosts, a time between two of them that differs by no more than their clocks may be apart is put
// in last, all such together. Compares with the measured median step. Where one of the two is of all ranks of a layout
// and the other of one pipeline, that one is taken as the same in every lane. Throws InputError when the two are not of
// the same plan.
[[nodiscard]] TimelineDiff diff(const Timeline& predicted, const Timeline& measured);

}  // namespace plumb
