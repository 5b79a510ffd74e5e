#include "common/scenario_file/scenario_rules.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/message_shares.hpp"
#include "common/scenario/boundary.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario/vocabulary_fit.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"
#include "common/split/split.hpp"

namespace plumb {
namespace {

// Without a global batch: microbatches per stage, which leave a bubble of about a fifth.
constexpr std::int64_t default_microbatches_per_stage = 4;

// Throws the last error of `check` unless it passes for the stages of some schedule on some layout.
template <class Check>
void require_some(const Scenario& scenario, Check check) {
  std::optional<InputError> last;
  for (const Layout& layout : layouts_of(scenario)) {
    for (const ScheduleChoice& schedule : scenario.schedules) {
      try {
        check(stages_of(schedule, layout.pipeline));
        return;
      } catch (const InputError& error) {
        last = error;
      }
    }
  }
  throw InputError(*last);
}

bool is_written(const SplitChoice& split) {
  return split.method == SplitMethod::counts || split.method == SplitMethod::megatron;
}

void require_ranks(const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  const int needed = ranks(scenario.layout);
  const auto fail = [](const std::string& problem) { throw InputError("cluster", problem); };
  if (needed != cluster.ranks) {
    fail("the layout " + describe(scenario.layout) + " has " + std::to_string(needed) + " ranks, the cluster " +
         std::to_string(cluster.ranks));
  }
  if (needed > most_cluster_ranks) fail("at most " + std::to_string(most_cluster_ranks) + " ranks can be");
  if (cluster.nodes > most_nodes) fail("at most " + std::to_string(most_nodes) + " nodes can be");
  const std::int64_t all = static_cast<std::int64_t>(cluster.nodes) * cluster.machine.devices;
  if (cluster.machine.device.type != DeviceType::cpu && needed > all) {
    fail(std::to_string(needed) + " ranks on " + std::to_string(all) + " devices");
  }
}

}  // namespace

ScheduleBounds schedule_bounds(const Scenario& scenario) {
  const std::vector<Layout> layouts = layouts_of(scenario);
  const auto shortest = std::ranges::min_element(layouts, {}, &Layout::pipeline);
  ScheduleBounds bounds{.pipeline = shortest->pipeline,
                        .layers = static_cast<int>(scenario.model.layers.size()),
                        .sequences_per_microbatch = scenario.microbatches.front() * batch_shards(scenario.layout),
                        .open = layouts.size() > 1};
  for (const std::int64_t size : scenario.microbatches) {
    bounds.microbatches.push_back(microbatches_of(scenario, size));
  }
  return bounds;
}

std::string nearest_divisors(const std::string& key, std::int64_t whole, std::int64_t wanted) {
  std::int64_t below = std::min(whole, wanted);
  while (whole % below != 0) --below;
  std::int64_t above = wanted;
  while (above < whole && whole % above != 0) ++above;
  return key + ": " + std::to_string(below) + (above <= whole ? " or " + std::to_string(above) : "");
}

// With several layouts one that each of them divides.
std::int64_t default_batch(const Scenario& scenario, std::int64_t microbatch) {
  const bool open = layouts_of(scenario).size() > 1;
  const int stages = open ? scenario.cluster.ranks : scenario.layout.pipeline;
  const std::int64_t shards = open ? 1 : batch_shards(scenario.layout);
  return default_microbatches_per_stage * stages * microbatch * shards;
}

void require_divided_batch(const Scenario& scenario) {
  if (layouts_of(scenario).size() > 1 || scenario.stage_data_pipelines) return;
  const std::int64_t shards = batch_shards(scenario.layout);
  const std::int64_t batch = scenario.training.global_batch;
  const auto divides = [&](std::int64_t size) { return batch % (size * shards) == 0; };
  if (std::ranges::any_of(scenario.microbatches, divides)) return;
  const std::int64_t least = std::ranges::min(scenario.microbatches) * shards;
  const std::int64_t below = batch / least * least;
  throw InputError("training", undivided_batch(scenario.layout, std::ranges::min(scenario.microbatches), batch),
                   "global_batch: " + (below > 0 ? std::to_string(below) + " or " : "") +
                       std::to_string(below + least) + ", or another data degree");
}

// Some microbatch must divide among the replicas of each stage, on some layout.
void require_divided_shares(const Scenario& scenario) {
  std::optional<std::string> uneven;
  for (const Layout& layout : layouts_of(scenario)) {
    for (const std::int64_t size : scenario.microbatches) {
      auto found = uneven_shares(layout, size);
      if (!found) return;
      if (!uneven) uneven = std::move(found);
    }
  }
  const std::int64_t least = least_microbatch(scenario.layout);
  throw InputError("layout", *uneven,
                   least > 0 ? "microbatch: " + std::to_string(least) + ", or a multiple of it" : "other degrees");
}

void require_divided_vocabulary(const Scenario& scenario) {
  if (layouts_of(scenario).size() > 1) return;
  if (const auto misfit = vocabulary_misfit(scenario.model, scenario.layout)) throw InputError(*misfit);
}

// Splits that are written down may leave the first and the last stage without a layer.
void require_stages_fit(const Scenario& scenario) {
  const bool written = std::ranges::any_of(scenario.splits, is_written);
  const int layers = static_cast<int>(scenario.model.layers.size()) + (written ? 2 : 0);
  require_some(scenario, [&](int stages) { require_stages(layers, stages); });
}

void require_split_fits(const Scenario& scenario, const SplitChoice& split) {
  if (!is_written(split)) return;
  const int layers = static_cast<int>(scenario.model.layers.size());
  require_some(scenario, [&](int stages) {
    (void)(split.method == SplitMethod::counts ? explicit_split(split.counts, layers, stages)
                                               : megatron_split(split.megatron, layers, stages));
  });
}

void require_slices_fit(const ScheduleChoice& choice, std::int64_t sequence) {
  const std::string schedule = "schedule " + choice.name + ": ";
  try {
    require_slices(choice.slice_tokens, sequence, "schedule");
  } catch (const InputError& error) {
    throw InputError("slices", schedule + error.problem(), error.hint());
  }
  const bool divided = choice.slice_tokens.empty() && choice.slices_by == SlicesBy::tokens;
  const std::string slices = std::to_string(choice.slices) + " slices";
  const std::string of_sequence = "a sequence of " + std::to_string(sequence) + " tokens";
  if (!divided && choice.slices > sequence) {
    throw InputError("slices", schedule + slices + " of " + of_sequence);
  }
  if (!divided || sequence % choice.slices == 0) return;
  throw InputError("schedule", schedule + slices + " do not divide " + of_sequence,
                   nearest_divisors("slices", sequence, choice.slices));
}

// One schedule by name with the keys beside it, such as `group: 3`, must suit some microbatch. The planner leaves out
// those of several that do not; one that is searched for suits all.
void require_schedule_fits(const Scenario& scenario, const ScheduleBounds& bounds) {
  const std::string& name = scenario.schedules.front().name;
  const bool one = std::ranges::all_of(scenario.schedules, [&](const auto& choice) { return choice.name == name; });
  if (!one || bounds.open || scenario.schedules.front().given || find_schedule(name).uses_times) return;
  require_slices_fit(scenario.schedules.front(), scenario.training.sequence);
  std::optional<InputError> first;
  for (const std::int64_t microbatches : bounds.microbatches) {
    for (const ScheduleChoice& choice : scenario.schedules) {
      if (microbatches > largest_schedule) return;
      try {
        (void)generate_schedule(name, {.ranks = bounds.pipeline,
                                       .microbatches = static_cast<int>(microbatches),
                                       .chunks = choice.chunks,
                                       .slices = choice.slices,
                                       .group = choice.group,
                                       .update_every = choice.update_every,
                                       .overlap = choice.overlap,
                                       .vocabulary_barriers = scenario.layout.vocabulary_barriers});
        return;
      } catch (const InputError& error) {
        if (!first) first = error;
      }
    }
  }
  throw InputError("schedule", "schedule " + name + ": " + first->problem(), first->hint());
}

void require_countable_messages(const Scenario& scenario) {
  (void)bytes(boundary_manifest(scenario.model, scenario.training));
}

void require_valid(const Scenario& asked) {
  Scenario scenario = asked;
  scenario.layouts = {asked.layout};
  const Layout& layout = scenario.layout;
  require_consistent(layout);
  require_none(refusals(scenario, settled_features(scenario)));
  require_ranks(scenario);
  require_divisible(scenario.model, layout);
  require_divides_sequence(layout.tensor, scenario.training.sequence);
  require_divided_vocabulary(scenario);
  require_divided_batch(scenario);
  require_divided_shares(scenario);
  require_stages_fit(scenario);
  require_schedule_fits(scenario, schedule_bounds(scenario));
  for (const SplitChoice& split : scenario.splits) require_split_fits(scenario, split);
  require_countable_messages(scenario);
  const std::vector<MissingNumber> missing = missing_numbers(scenario);
  if (missing.empty()) return;
  throw InputError("cluster", problem_of(missing, scenario.cluster.machine.name), "add " + lines_of(missing));
}

}  // namespace plumb
