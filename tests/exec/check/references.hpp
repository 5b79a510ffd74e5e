// One device's training, made once for all runs of a test that are held against the same.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/check/check.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec::test {

// All of a plan that one device sees. A run that is held against another's reference differs from it by bits.
struct SeenByOneDevice {
  Model model;
  Training training;
  int microbatches = 0;
  int slices = 0;
  std::vector<std::int64_t> slice_tokens;
  int replicas = 0;
  int shares = 0;                // of the batch
  int shares_of_copy = 0;        // whose gradients are summed first
  bool each_microbatch = false;  // and of each microbatch
  bool quantized_weights = false;
  int quantized_gradients = 0;
  std::size_t steps = 0;
  // Of a run with tensor groups, whose last step begins with its own weights and goes to its own experts.
  bool divided = false;
  NamedGradients weights;
  NamedGradients routing;
  bool operator==(const SeenByOneDevice&) const = default;
};

// As check_against_reference. Runs with tensor groups share one device where they have come to the same weights.
inline CheckResult check_against_shared_reference(const Plan& plan, const Trained& run) {
  if (plan.schedule.update_every > 0) return check_against_reference(plan, {}, run);
  constexpr std::size_t most_kept = 16;
  static std::deque<std::pair<SeenByOneDevice, Reference>> made;
  SeenByOneDevice seen{
      .model = plan.model,
      .training = plan.training,
      .microbatches = plan.schedule.microbatches,
      .slices = plan.schedule.slices,
      .slice_tokens = plan.schedule.slice_tokens,
      .replicas = replicas(plan.schedule),
      .shares = plan.layout.data.degree,
      .shares_of_copy = state_shards(plan.layout) == 1 ? plan.layout.data.degree : state_shards(plan.layout),
      .each_microbatch = reduces_in_actions(plan.layout),
      .quantized_weights = plan.layout.data.quantized_weights,
      .quantized_gradients = plan.layout.data.quantized_gradients,
      .steps = run.losses.size(),
      .divided = plan.layout.tensor.degree > 1,
      .weights = run.weights,
      .routing = run.routing};
  const auto same =
      std::ranges::find(made, seen, [](const auto& each) -> const SeenByOneDevice& { return each.first; });
  if (same != made.end()) return same->second.compare(run);
  if (made.size() == most_kept) made.pop_front();
  made.emplace_back(std::piecewise_construct, std::forward_as_tuple(std::move(seen)),
                    std::forward_as_tuple(plan, corpus_of(plan, {}), run, "cpu", CheckWatch{}));
  return made.back().second.compare(run);
}

inline CheckResult check_against_shared_reference(const Plan& plan, const std::vector<double>& losses,
                                                  const NamedGradients& gradients) {
  return check_against_shared_reference(plan, Trained{.losses = losses, .gradients = gradients});
}

}  // namespace plumb::exec::test
