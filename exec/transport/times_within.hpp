// What a rank's own actions spend on collectives within them.
#pragma once

#include <algorithm>

#include "common/timeline/communication_time.hpp"
#include "exec/device/clock.hpp"

namespace plumb::exec {

// Of its tensor group, and for weights that they gather and gradients that they reduce over the data-parallel ranks.
struct TimesWithin {
  CommunicationTime tensor = {};
  CommunicationTime data = {};
  bool operator==(const TimesWithin&) const = default;
};

// What counts them, whoever makes the collectives: a transport.
class CountsTimesWithin {
 public:
  // Since the start; where they move on streams, nothing.
  [[nodiscard]] TimesWithin& within_actions() { return within_; }

 private:
  TimesWithin within_;
};

// What has been added to `before`.
[[nodiscard]] inline TimesWithin since(TimesWithin now, const TimesWithin& before) {
  now.tensor -= before.tensor;
  now.data -= before.data;
  return now;
}

// One that the rank does nothing beside.
[[nodiscard]] inline CommunicationTime not_hidden(Clock::time_point begin, Clock::time_point end) {
  return {.on_its_way = seconds_of(end) - seconds_of(begin), .hidden = {}};
}

// One that was started, beside which the rank went on until it wanted it.
struct TimesBeside {
  Clock::time_point begun = {};    // the rank gives its part
  Clock::time_point started = {};  // and goes on,
  Clock::time_point wanted = {};   // until it has nothing else to do
  Clock::time_point ended = {};    // or has taken all
  Clock::time_point arrived = {};  // when the last part of others had come, of those that come while it goes on
};

// On its way until the last part had come, and while the rank takes it; hidden from `started` until it had come or was
// wanted. That a peer starts later counts as its way.
[[nodiscard]] inline CommunicationTime time_of(const TimesBeside& times) {
  const Seconds hidden = seconds_of(std::clamp(times.arrived, times.started, std::max(times.started, times.wanted))) -
                         seconds_of(times.started);
  const Seconds exposed =
      (seconds_of(times.started) - seconds_of(times.begun)) + (seconds_of(times.ended) - seconds_of(times.wanted));
  return {.on_its_way = hidden + exposed, .hidden = hidden};
}

}  // namespace plumb::exec
