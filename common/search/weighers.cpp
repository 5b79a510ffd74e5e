// How families are weighed: as a plan is made, or by compiled schedules.
#include <memory>

#include "common/base/stop.hpp"
#include "common/search/estimate.hpp"
#include "common/search/fast_evaluator.hpp"
#include "common/search/search.hpp"

namespace plumb {
namespace {

struct Watched {
  explicit Watched(const Scenario& scenario) : evaluator(scenario, &stop) {}
  Stop stop;
  FastEvaluator evaluator;
};

}  // namespace

Weigher slow_weigher(const Scenario& scenario) {
  return {.time_bound = [](const Family&) { return Seconds{}; },
          .memory_bound = [](const Family&) { return Bytes{}; },
          .weigh = [&scenario](const Family& family, const SplitChoice& split,
                               std::optional<Seconds>) { return weigh_slowly(scenario, family, split); },
          .refined = [&scenario](const Family& family) { return refined_slowly(scenario, family); }};
}

Weigher fast_weigher(const Scenario& scenario) {
  const auto fast = std::make_shared<Watched>(scenario);
  return {.time_bound = [fast](const Family& family) { return fast->evaluator.time_bound(family); },
          .memory_bound = [fast](const Family& family) { return fast->evaluator.memory_bound(family); },
          .weigh = [fast](const Family& family, const SplitChoice& split,
                          std::optional<Seconds> at_most) { return fast->evaluator.weigh(family, split, at_most); },
          .refined = [fast](const Family& family) { return fast->evaluator.refined(family); },
          .watch = [fast](const Stop& stop) { fast->stop = stop; }};
}

}  // namespace plumb
