#include "sim/disturbances.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "common/base/error.hpp"

namespace plumb::sim {
namespace {

// SimGrid takes less than 1e-5 of a capacity for none, and then for no limit.
constexpr double least_factor = 1e-3;

void require_valid(const Disturbance& disturbance, const Platform& platform) {
  const auto refuse = [](const std::string& problem) { throw InputError("disturbance", problem); };
  const auto on_platform = [&](int rank) { return rank >= 0 && rank < platform.ranks; };
  if (!on_platform(disturbance.rank)) refuse("there is no rank " + std::to_string(disturbance.rank));
  const bool way = disturbance.what == Disturbed::way;
  if (way && (!on_platform(disturbance.peer) || disturbance.peer == disturbance.rank)) {
    refuse("a way joins two different ranks of the platform");
  }
  const double factor = disturbance.factor;
  if (factor != 0 && !(factor >= least_factor && factor <= 1)) refuse("a factor is 0, or from 0.001 to 1");
  if (!(disturbance.from.value >= 0 && disturbance.from < disturbance.until)) refuse("it must begin before it ends");
  const int machine = disturbance.rank / platform.ranks_per_machine;
  if (disturbance.what == Disturbed::device && shares_cores(platform, machine)) {
    refuse("rank " + std::to_string(disturbance.rank) + " shares its cores with others");
  }
}

}  // namespace

std::vector<SpeedChange> speed_changes(std::span<const Disturbance> of_one_thing) {
  std::set<Seconds> dates = {Seconds{}};
  for (const Disturbance& disturbance : of_one_thing) {
    dates.insert(disturbance.from);
    if (std::isfinite(disturbance.until.value)) dates.insert(disturbance.until);
  }
  std::vector<SpeedChange> changes;
  for (const Seconds date : dates) {
    double factor = 1;
    for (const Disturbance& disturbance : of_one_thing) {
      if (disturbance.from <= date && date < disturbance.until) factor *= disturbance.factor;
    }
    if (factor != 0) factor = std::max(factor, least_factor);
    if (changes.empty() || changes.back().factor != factor) changes.push_back({.date = date, .factor = factor});
  }
  return changes;
}

Seconds time_under(std::span<const SpeedChange> changes, Seconds begin, Seconds alone) {
  double left = alone.value;
  for (std::size_t n = 0; n < changes.size(); ++n) {
    const double from = std::max(begin.value, changes[n].date.value);
    const double until = n + 1 < changes.size() ? changes[n + 1].date.value : std::numeric_limits<double>::infinity();
    if (until <= from) continue;
    const double factor = changes[n].factor;
    if (factor > 0 && left <= (until - from) * factor) return Seconds{from + left / factor} - begin;
    if (factor > 0) left -= (until - from) * factor;
  }
  return {std::numeric_limits<double>::infinity()};
}

bool anything_fails(std::span<const Disturbance> disturbances) {
  return std::ranges::any_of(disturbances, [](const Disturbance& disturbance) {
    return disturbance.factor == 0 && std::isinf(disturbance.until.value);
  });
}

void require_valid(std::span<const Disturbance> disturbances, const Platform& platform) {
  for (const Disturbance& disturbance : disturbances) require_valid(disturbance, platform);
}

}  // namespace plumb::sim
