#include "common/planner/slice_tokens.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/cost/costs.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {
namespace {

constexpr std::int64_t tile = 128;
constexpr int microbatches_of_steady_state = 6;  // beyond those that fill the pipeline
constexpr std::int64_t least_multiples = 8;      // of a slice, on average: to be even within some percent

std::int64_t chunk_of(const Mixer& mixer) {
  return std::visit(
      [](const auto& kind) -> std::int64_t {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, Lightning>) {
          return kind.block;
        } else if constexpr (std::is_same_v<Kind, GatedDelta> || std::is_same_v<Kind, ChannelGatedDelta> ||
                             std::is_same_v<Kind, Mamba2>) {
          return kind.chunk;
        } else {
          return 1;
        }
      },
      mixer);
}

std::vector<std::int64_t> tokens_of(const ScheduleChoice& choice) {
  return choice.given ? choice.given->slice_tokens : choice.slice_tokens;
}

// Of tokens that the ranks of a tensor group divide.
std::int64_t least_multiple(const TensorLayout& tensor) { return divides_tokens(tensor) ? tensor.degree : 1; }

bool can_be_equal(const Scenario& scenario, int slices) {
  return scenario.training.sequence % (slices * least_multiple(scenario.layout.tensor)) == 0;
}

// F and B of all blocks together.
Seconds work_of(const Scenario& scenario, std::int64_t microbatch, Slice slice) {
  Seconds sum;
  for (const ComputeCost& block : block_costs(scenario, microbatch, {slice})) sum += microbatch_time(block, false);
  return sum;
}

// Of the schedule on equal stages that share all blocks out, without messages: the longest path of the first
// microbatches, and what each further one adds to it.
Seconds step_on_even_stages(const Scenario& scenario, const PlanChoice& choice,
                            const std::vector<std::int64_t>& tokens) {
  // Each alone, so that a profile's equal slices are costed as others are.
  std::vector<ActionTimes> times;
  for (const Slice& slice : slices_of(tokens)) {
    times.push_back(times_of(in_sequence(block_costs(scenario, choice.microbatch, {slice})), 0));
  }
  const int ranks = scenario.layout.pipeline;
  const int slices = choice.schedule.slices;
  PipelineCosts costs = even_costs(ranks, {});
  for (ComputeCost& stage : costs.stages) {
    for (const ActionTimes& own : times) {
      stage.slices.push_back({.forward = own.forward / ranks, .input_gradient = backward_time(own) / ranks});
    }
  }
  const auto step = [&](int microbatches) {
    const ScheduleShape shape{.ranks = ranks, .microbatches = microbatches, .slices = slices};
    return evaluate(build_graph(lower(generate_schedule(choice.schedule.name, shape), {}), costs)).makespan;
  };
  const std::int64_t microbatches = microbatches_of(scenario, choice.microbatch);
  const int few = ranks / slices + microbatches_of_steady_state;
  if (microbatches <= few) return step(static_cast<int>(microbatches));
  const Seconds first = step(few - 2);
  return first + (step(few) - first) * (static_cast<double>(microbatches - few + 2) / 2);
}

}  // namespace

void require_slices_possible(const Scenario& scenario, const ScheduleChoice& choice) {
  const std::int64_t sequence = scenario.training.sequence;
  const std::vector<std::int64_t> written = tokens_of(choice);
  const int slices = choice.given ? choice.given->slices : choice.slices;
  if (slices == 1) return;
  require_slices(written, sequence, "schedule");
  const bool by_work = choice.slices_by == SlicesBy::work;
  const bool equal = unequal(written).empty() && !by_work;
  if (equal && sequence % slices != 0) {
    throw InputError("training", std::to_string(slices) + " slices do not divide a sequence of " +
                                     std::to_string(sequence) + " tokens");
  }
  const int degree = scenario.layout.tensor.degree;
  const bool divided = divides_tokens(scenario.layout.tensor);
  if (equal && divided && sequence / slices % degree != 0) {
    throw InputError("training", std::to_string(slices) + " slices of " + std::to_string(sequence / slices) +
                                     " tokens are not divided among the " + std::to_string(degree) +
                                     " ranks of a tensor group, as sequence parallelism wants them");
  }
  if (equal) return;
  if (!divided) return;
  const bool even = std::ranges::all_of(written, [&](std::int64_t tokens) { return tokens % degree == 0; });
  if (even && sequence % degree == 0) return;
  throw InputError("schedule",
                   "with sequence parallelism each slice's tokens are divided among the " + std::to_string(degree) +
                       " ranks of a tensor group",
                   "slices in multiples of " + std::to_string(degree) + " tokens");
}

std::int64_t slice_multiple(const Scenario& scenario, int slices) {
  const std::int64_t least = least_multiple(scenario.layout.tensor);
  std::int64_t wanted = tile;
  for (const Layer& layer : scenario.model.layers) wanted = std::lcm(wanted, chunk_of(layer.mixer));
  const auto few = [&] { return scenario.training.sequence / slices < least_multiples * std::lcm(wanted, least); };
  while (wanted > 1 && few()) wanted = wanted % 2 == 0 ? wanted / 2 : 1;
  return std::lcm(wanted, least);
}

bool competes_with_equal_slices(const Scenario& scenario, const ScheduleChoice& choice) {
  return choice.slices_by == SlicesBy::work && !scenario.profile && can_be_equal(scenario, choice.slices);
}

std::vector<std::int64_t> slice_tokens(const Scenario& scenario, const PlanChoice& choice) {
  const ScheduleChoice& schedule = choice.schedule;
  const bool by_work = schedule.slices_by == SlicesBy::work && schedule.slices > 1;
  if (schedule.given || !by_work) return unequal(tokens_of(schedule));
  const std::int64_t sequence = scenario.training.sequence;
  std::map<std::pair<std::int64_t, std::int64_t>, Seconds> known;
  const SliceWork work = [&](std::int64_t before, std::int64_t tokens) {
    const auto [found, is_new] = known.try_emplace({before, tokens});
    if (is_new) found->second = work_of(scenario, choice.microbatch, {.before = before, .tokens = tokens});
    return found->second;
  };
  std::optional<std::vector<std::int64_t>> best;
  Seconds least;
  for (std::int64_t multiple = slice_multiple(scenario, schedule.slices);
       !best || sequence / schedule.slices >= 2 * multiple; multiple *= 2) {
    std::vector<std::int64_t> tokens = equal_work_slices({.sequence = sequence,
                                                          .slices = schedule.slices,
                                                          .multiple = multiple,
                                                          .can_be_equal = can_be_equal(scenario, schedule.slices)},
                                                         work);
    const Seconds step = step_on_even_stages(scenario, choice, tokens);
    if (best && !(step < least)) continue;
    best = std::move(tokens);
    least = step;
  }
  return unequal(std::move(*best));
}

}  // namespace plumb
