#include "common/timeline/chart/time_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/text.hpp"

namespace plumb {

TimeUnit time_unit(Seconds longest, bool unicode) {
  const double value = std::abs(longest.value);
  if (value >= 1 || value == 0) return {.per_second = 1, .name = "s"};
  if (value >= 1e-3) return {.per_second = 1e3, .name = "ms"};
  if (value >= 1e-6) return {.per_second = 1e6, .name = unicode ? "µs" : "us"};
  return {.per_second = 1e9, .name = "ns"};
}

std::vector<Tick> round_ticks(Seconds duration, int most, const TimeUnit& unit) {
  const double length = duration.value * unit.per_second;
  if (!(length > 0) || !std::isfinite(length)) return {{.time = {}, .label = "0"}};
  const double least = length / std::max(1, most - 1);
  double step = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step * factor >= least * (1 - 1e-12)) {
      step *= factor;
      break;
    }
  }
  std::vector<Tick> ticks;
  for (int i = 0; i * step <= length * (1 + 1e-12); ++i) {
    ticks.push_back({.time = {i * step / unit.per_second}, .label = fmt::format("{:.6g}", i * step)});
  }
  return ticks;
}

std::string signed_text(Seconds time) { return (time.value > 0 ? "+" : "") + to_text(time); }

}  // namespace plumb
