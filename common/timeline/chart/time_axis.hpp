// Round ticks for charts, and changes of times in words. Internal.
#pragma once

#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb {

// A unit in which times up to `longest` are easy to read: "s", "ms", "µs" or "ns".
struct TimeUnit {
  double per_second = 1;
  std::string name;
  bool operator==(const TimeUnit&) const = default;
};
[[nodiscard]] TimeUnit time_unit(Seconds longest, bool unicode = true);

struct Tick {
  Seconds time;
  std::string label;  // without unit
};

// Multiples of 1, 2 or 5 times a power of ten from 0 to at most `duration`; at most `most` of them (two at least).
[[nodiscard]] std::vector<Tick> round_ticks(Seconds duration, int most, const TimeUnit& unit);

// A change: "+12.35 ms", "-80.25 µs", "0 s".
[[nodiscard]] std::string signed_text(Seconds time);

}  // namespace plumb
