// How the clock of a host stands to that of rank 0's: what round trips between the two say, and times turned from one
// to the other.
#pragma once

#include <span>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

// Of a message from rank 0 to a rank of the host and back.
struct RoundTrip {
  Seconds sent;      // on rank 0's clock
  Seconds answered;  // on the host's
  Seconds returned;  // on rank 0's
};

// By how much the host's clock is ahead of rank 0's, at one moment.
struct ClockOffset {
  Seconds at;           // on the host's clock
  Seconds offset;       // host's − rank 0's
  Seconds uncertainty;  // the true one differs by at most so much, however differently long the two ways are
  bool operator==(const ClockOffset&) const = default;
};

// From the trip that took least: the answer is taken to be midway between its ends, which is off by at most half of the
// trip (Cristian 1989, "Probabilistic clock synchronization"; as NTP, RFC 5905 section 8, with one stamp at the host).
// Throws RunError when there is no trip, or when one came back before it was sent.
[[nodiscard]] ClockOffset clock_offset(std::span<const RoundTrip> trips);

// Offsets as they were measured, ascending by `at`; none: a clock that is rank 0's own.
using HostClock = std::vector<ClockOffset>;

// Throws RunError when the host's clock went back since the measurement before: its times cannot be told.
void add_measurement(HostClock& clock, const ClockOffset& measured);

// `time` of the host's clock on rank 0's. Between two measurements the offset changes linearly, outside of them not at
// all.
[[nodiscard]] Seconds on_rank_0(const HostClock& clock, Seconds time);

// Two clocks that are disciplined keep within so much of each other's rate: each within 500 ppm of true time (RFC 5905,
// MAXFREQ, which is also what Linux lets a clock be slewed by).
inline constexpr double most_drift = 1e-3;

// The largest change of the offset between two measurements that neither drift nor their uncertainties explain: the
// clock was set, or its host stood still (a virtual machine that was moved). 0: there is none.
[[nodiscard]] Seconds jump(const HostClock& clock);

// Times turned by `on_rank_0` are right within so much, as far as drift is linear: the largest uncertainty of a
// measurement, and where the clock jumped the jump too, since nobody knows when. 0 for rank 0's own clock.
[[nodiscard]] Seconds uncertainty(const HostClock& clock);

}  // namespace plumb::exec
