#include "common/study/bottleneck.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace plumb {

Bottleneck bottleneck(const Plan& plan) {
  std::vector<Seconds> times(static_cast<std::size_t>(plan.schedule.ranks));
  Seconds sum;
  const std::vector<bool> recomputed = recomputed_stages(plan.schedule);
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const Seconds time = microbatch_time(plan.costs.stages[stage], recomputed[stage]);
    // With two replicas half of the microbatches go through each.
    const int copies = replicas(plan.schedule);
    for (int replica = 0; replica < copies; ++replica) {
      const int rank = rank_in_replica(plan.schedule, replica, static_cast<int>(stage));
      times[static_cast<std::size_t>(rank)] += time * (static_cast<double>(plan.schedule.slices) / copies);
    }
    sum += time * static_cast<double>(plan.schedule.slices);
  }
  const auto longest = std::max_element(times.begin(), times.end());
  return {.rank = static_cast<int>(longest - times.begin()),
          .time = *longest,
          .mean = sum / static_cast<double>(times.size())};
}

std::string describe_bottleneck(const Plan& plan) {
  const Bottleneck found = bottleneck(plan);
  std::string list;
  int count = 0;
  for (const int stage : stages_of_rank(plan.schedule, found.rank)) {
    list += (count++ == 0 ? "" : ", ") + std::to_string(stage);
  }
  const double above = found.mean.value > 0 ? found.time / found.mean - 1 : 0;
  return "rank " + std::to_string(found.rank) + (count == 1 ? " (stage " : " (stages ") + list +
         "): " + to_text(found.time) + " a microbatch, " + percent_text(above) + " above the mean of the ranks";
}

}  // namespace plumb
