#include "exec/host/host_clock.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

Seconds change(const ClockOffset& before, const ClockOffset& after) {
  return {std::abs((after.offset - before.offset).value)};
}

Seconds unexplained(const ClockOffset& before, const ClockOffset& after) {
  const Seconds explained = (after.at - before.at) * most_drift + before.uncertainty + after.uncertainty;
  return change(before, after) > explained ? change(before, after) : Seconds{0};
}

}  // namespace

ClockOffset clock_offset(std::span<const RoundTrip> trips) {
  if (trips.empty()) throw RunError("clocks", "there is no round trip to compare two hosts' clocks by");
  const auto took = [](const RoundTrip& trip) { return trip.returned - trip.sent; };
  const auto least = std::min_element(trips.begin(), trips.end(),
                                      [&](const RoundTrip& a, const RoundTrip& b) { return took(a) < took(b); });
  if (took(*least) < Seconds{0}) {
    throw RunError("clocks", "a message came back before it was sent: rank 0's clock went back",
                   "see dmesg on its host for what sets the clock");
  }
  const Seconds half = took(*least) / 2;
  return {.at = least->answered, .offset = least->answered - (least->sent + half), .uncertainty = half};
}

void add_measurement(HostClock& clock, const ClockOffset& measured) {
  if (!clock.empty() && measured.at <= clock.back().at) {
    throw RunError("clocks", "the clock of a host went back during the run: its times cannot be told",
                   "see dmesg on that host for what sets the clock");
  }
  clock.push_back(measured);
}

Seconds on_rank_0(const HostClock& clock, Seconds time) {
  if (clock.empty()) return time;
  if (time <= clock.front().at) return time - clock.front().offset;
  for (std::size_t i = 1; i < clock.size(); ++i) {
    const ClockOffset& before = clock[i - 1];
    const ClockOffset& after = clock[i];
    if (time > after.at) continue;
    const double share = (time - before.at) / (after.at - before.at);
    return time - (before.offset + (after.offset - before.offset) * share);
  }
  return time - clock.back().offset;
}

Seconds jump(const HostClock& clock) {
  Seconds largest{0};
  for (std::size_t i = 1; i < clock.size(); ++i) largest = std::max(largest, unexplained(clock[i - 1], clock[i]));
  return largest;
}

Seconds uncertainty(const HostClock& clock) {
  Seconds largest{0};
  for (const ClockOffset& measured : clock) largest = std::max(largest, measured.uncertainty);
  return largest + jump(clock);
}

}  // namespace plumb::exec
