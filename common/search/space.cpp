#include "common/search/space.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/layout_features.hpp"
#include "common/layout/message_shares.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario/vocabulary_fit.hpp"

namespace plumb {
namespace {

// Splits that are written down may leave the first and the last stage without a layer.
bool is_written(const SplitChoice& split) {
  return split.method == SplitMethod::counts || split.method == SplitMethod::megatron;
}

}  // namespace

SearchSpace::SearchSpace(const Scenario& scenario)
    : scenario_(scenario),
      layouts_(plumb::layouts_of(scenario)),
      recomputes_(recomputes_of(scenario)),
      offloads_(offloads_of(scenario)),
      of_all_(features_of_all(scenario)) {
  for (const Layout& layout : layouts_) {
    std::string refusal;
    try {
      if (layouts_.size() > 1) require_divisible(scenario.model, layout);
    } catch (const InputError& error) {
      refusal = error.problem();
    }
    layout_refusals_.push_back(std::move(refusal));
    layout_features_.push_back(features_of(layout) | features_of(scenario.software, layout));
  }
  families_ = std::ssize(layouts_) * std::ssize(recomputes_) * std::ssize(offloads_) *
              std::ssize(scenario.microbatches) * std::ssize(scenario.schedules);
  most_stages_ =
      static_cast<int>(scenario.model.layers.size()) + (std::ranges::any_of(scenario.splits, is_written) ? 2 : 0);
}

const Layout& SearchSpace::layout_of(std::int64_t family) const {
  return layouts_[static_cast<std::size_t>(family / (families_ / std::ssize(layouts_)))];
}

Family SearchSpace::family(std::int64_t family) const {
  auto rest = static_cast<std::size_t>(family);
  const auto next = [&rest](std::size_t count) {
    const std::size_t index = rest % count;
    rest /= count;
    return index;
  };
  const std::size_t schedule = next(scenario_.schedules.size());
  const std::size_t offload = next(offloads_.size());
  const std::size_t recompute = next(recomputes_.size());
  const std::size_t microbatch = next(scenario_.microbatches.size());
  return {.layout = layout_of(family),
          .microbatch = scenario_.microbatches[microbatch],
          .recompute = recomputes_[recompute],
          .offload = offloads_[offload],
          .schedule = scenario_.schedules[schedule]};
}

PlanChoice SearchSpace::choice(std::int64_t candidate) const {
  const Family of = family(candidate / splits());
  return {.microbatch = of.microbatch,
          .schedule = of.schedule,
          .split = scenario_.splits[static_cast<std::size_t>(candidate % splits())],
          .layout = of.layout,
          .recompute = of.recompute,
          .offload = of.offload};
}

// As far as names tell; a schedule that is made tells more.
std::optional<std::string> SearchSpace::cannot_be_planned(const Family& family, std::size_t layout) const {
  UsedFeatures used{.set = of_all_ | layout_features_[layout] | features_of(family.recompute, scenario_.software) |
                           features_of(family.offload) | features_of(family.schedule),
                    .schedule = family.schedule.name};
  if (is_refused(scenario_, used.set)) return refusals(scenario_, used).front().problem;
  if (const auto misfit = vocabulary_misfit(scenario_.model, family.layout)) return misfit->problem();
  if (!family.schedule.given) return std::nullopt;
  const auto misfit = barrier_misfit(*family.schedule.given, family.layout);
  return misfit ? std::optional(misfit->problem()) : std::nullopt;
}

std::optional<std::string> SearchSpace::refusal(std::int64_t family) const {
  const auto layout = static_cast<std::size_t>(family / (families_ / std::ssize(layouts_)));
  if (!layout_refusals_[layout].empty()) return layout_refusals_[layout];
  const Family of = this->family(family);
  if (scenario_.training.global_batch % (of.microbatch * batch_shards(of.layout)) != 0) {
    return "microbatch × data degree does not divide the batch of " + std::to_string(scenario_.training.global_batch);
  }
  if (auto uneven = uneven_shares(of.layout, of.microbatch)) return uneven;
  if (auto undivided = undivided_microbatch(of.layout.tensor, of.microbatch)) return undivided;
  if (auto refused = cannot_be_planned(of, layout)) return refused;
  if (stages_of(of.schedule, of.layout.pipeline) > most_stages_) {
    return "more stages than the " + std::to_string(scenario_.model.layers.size()) + " layers";
  }
  return std::nullopt;
}

}  // namespace plumb
