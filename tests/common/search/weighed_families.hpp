// What weighing says of a small space's candidates, each once: a whole plan is made for it.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/search/search.hpp"

namespace plumb::testing {

// Of a family: by split, in the scenario's order; none for what cannot be built.
struct WeighedFamily {
  Family family;
  std::vector<std::optional<Estimate>> by_split = {};
  Seconds least_time = longest_time;
  Bytes least_memory{std::int64_t{1} << 60};
};

// For all threads and searches that ask.
class WeighedFamilies {
 public:
  explicit WeighedFamilies(Scenario scenario) : scenario_(std::move(scenario)) {}

  const WeighedFamily& of(const Family& family) {
    const std::scoped_lock lock(mutex_);
    const auto known = std::ranges::find(known_, family, &WeighedFamily::family);
    return known != known_.end() ? *known : known_.emplace_back(weighed(family));
  }

  // Throws, as weighing does, for what cannot be built.
  Estimate of(const Family& family, const SplitChoice& split) {
    const auto index = std::ranges::find(scenario_.splits, split) - scenario_.splits.begin();
    if (index < std::ssize(scenario_.splits)) {
      if (const auto& found = of(family).by_split[static_cast<std::size_t>(index)]) return *found;
    }
    return weigh_slowly(scenario_, family, split);
  }

 private:
  [[nodiscard]] WeighedFamily weighed(const Family& family) const {
    WeighedFamily made{.family = family};
    for (const SplitChoice& split : scenario_.splits) {
      try {
        const Estimate& estimate = made.by_split.emplace_back(weigh_slowly(scenario_, family, split)).value();
        made.least_time = std::min(made.least_time, estimate.iteration);
        made.least_memory = std::min(made.least_memory, estimate.peak_bytes);
      } catch (const InputError&) {
        made.by_split.emplace_back();
      }
    }
    return made;
  }

  Scenario scenario_;
  std::mutex mutex_;
  std::deque<WeighedFamily> known_;
};

// Bounds that hold and are as tight as a seed makes them: a part of the least that any candidate of the family has.
inline Weigher bounded_weigher(const Scenario& scenario, const std::shared_ptr<WeighedFamilies>& weighed,
                               double tightness) {
  Weigher weigher = slow_weigher(scenario);
  weigher.time_bound = [=](const Family& family) { return weighed->of(family).least_time * tightness; };
  weigher.memory_bound = [=](const Family& family) { return weighed->of(family).least_memory; };
  weigher.weigh = [=](const Family& family, const SplitChoice& split, std::optional<Seconds>) {
    return weighed->of(family, split);
  };
  return weigher;
}

}  // namespace plumb::testing
