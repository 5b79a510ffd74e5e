#include "common/search/fast_evaluator.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/plan/cut_problem.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/gradient_clipping.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_features.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/planner/fastest_split.hpp"
#include "common/planner/slice_tokens.hpp"
#include "common/scenario/used_features.hpp"
#include "common/search/block_cache.hpp"
#include "common/search/bounds.hpp"
#include "common/search/peak_memory.hpp"
#include "common/search/split_proof.hpp"
#include "common/search/structure_cache.hpp"
#include "common/split/equal_layers.hpp"

namespace plumb {
namespace {

// Microbatches that are left out make an error of at most this part of the makespan.
constexpr double left_out_tolerance = 1e-10;

// Slices of equal work are only taken where they are better than these.
std::optional<Family> with_equal_tokens(const Family& family, const Scenario& scenario) {
  if (!competes_with_equal_slices(scenario, family.schedule)) return std::nullopt;
  Family equal = family;
  equal.schedule.slices_by = SlicesBy::tokens;
  return equal;
}

// With one barrier W of the head may come any time behind it.
BoundedParts bounded_parts(const PartCosts& parts, int barriers) {
  const auto& [head, embedding] = parts;
  const Seconds gradient = barriers == 1 ? head.input_gradient : backward_time(times_of(head, 0));
  return {.passing = microbatch_time(head, false) + microbatch_time(embedding, false),
          .in_between = head.forward + gradient,
          .optimizer = head.optimizer + embedding.optimizer,
          .states = states_held(head) + states_held(embedding)};
}

std::size_t as_size(int number) { return static_cast<std::size_t>(number); }

std::vector<std::vector<Moment>> until_input(HeldMoments held) {
  return held.moments_until_input.empty() ? std::move(held.moments) : std::move(held.moments_until_input);
}

}  // namespace

class FastEvaluator::Impl {
 public:
  Impl(const Scenario& scenario, const Stop* stop)
      : scenario_(scenario),
        shared_features_(features_of_all(scenario)),
        exchange_(scenario.software.exchange),
        stop_(stop),
        structures_(stop) {
    plan_.name = scenario.name;
    plan_.model = scenario.model;
    plan_.cluster = scenario.cluster;
  }

  Seconds time_bound(const Family& family);
  Bytes memory_bound(const Family& family);
  Estimate weigh(const Family& family, const SplitChoice& split, std::optional<Seconds> at_most);
  Split refined(const Family& family);

 private:
  [[nodiscard]] Seconds time_bound_as_asked(const Family& family);
  [[nodiscard]] Bytes memory_bound_as_asked(const Family& family);
  void set_family(const Family& family);
  void settle(const Family& family);
  void settle_structure(const PlanChoice& choice);
  [[nodiscard]] const std::vector<ComputeCost>& bounded_blocks(const Family& family, BoundedFamily& bounded);
  [[nodiscard]] bool needs_whole_plan() const {
    return structure_->evicts || (structure_->has_pairs && plan_.software.hidden_in_pairs > 0);
  }
  [[nodiscard]] bool divides_vocabulary() const { return plan_.layout.vocabulary_barriers > 0; }
  [[nodiscard]] bool settles(const Family& family);
  [[nodiscard]] Scenario asked() const;
  [[nodiscard]] Split dynamic_split(bool thorough);
  [[nodiscard]] bool all_splits_exceed(Seconds at_most);
  void set_costs(const Split& split);
  [[nodiscard]] const ComputeCost& cost_of(int stage, int first, int last);
  [[nodiscard]] FullestOfCompiled fullest_rank();
  [[nodiscard]] const Estimate* weigh_split(const Split& split, std::optional<Seconds> below);

  Scenario scenario_;           // settled for the last family
  FeatureSet shared_features_;  // same in all families
  PipelineExchange exchange_;
  const Stop* stop_;
  Plan plan_;  // the same, without actions
  PipelineCosts costs_;
  StageGroups groups_;  // of all stages
  BlockCache blocks_;
  StructureCache structures_;
  std::optional<Family> family_;
  const Structure* structure_ = nullptr;
  int more_ = 0;  // blocks of each of its loops
  HeldOnHost held_on_host_;
  BlockRuns* runs_ = nullptr;
  // By run, stages on the rank, and whether W makes the last gradients.
  std::map<std::tuple<std::size_t, std::size_t, bool>, ComputeCost> stage_costs_;
  std::vector<ComputeCost> parts_;       // of a vocabulary that the ranks divide, as stages
  std::vector<const ComputeCost*> set_;  // by stage, of these, what costs_ has: splits share most of it
  std::vector<double> durations_;
  CompiledTimes times_;
  PeakMemory memory_;
  std::vector<Estimate> weighed_;  // of this family
};

void FastEvaluator::Impl::set_family(const Family& family) {
  family_.reset();
  scenario_.layout = family.layout;
  scenario_.training.microbatch = family.microbatch;
  scenario_.training.recompute = family.recompute;
  scenario_.training.offload = family.offload;
  scenario_.software.exchange = exchange_;
  scenario_.cluster.ranks = ranks(family.layout);
  plan_.cluster.ranks = scenario_.cluster.ranks;
  plan_.training = scenario_.training;
  plan_.layout = family.layout;
  plan_.software = scenario_.software;
}

// What the family's candidates share, as plan_on settles it.
void FastEvaluator::Impl::settle(const Family& family) {
  if (family_ == family) return;
  set_family(family);
  settle_structure({.microbatch = family.microbatch, .schedule = family.schedule, .split = {}});
  if (needs_whole_plan()) return;
  plan_.schedule = structure_->placement;
  require_planned(plan_, shared_features_);
  plan_.boundary = plan_boundary(plan_);
  if (structure_->splits_backward) scenario_.software.exchange = PipelineExchange::asynchronous;
  plan_.software.exchange = scenario_.software.exchange;
  runs_ = &blocks_.runs(scenario_, plan_, structure_->splits_backward);
  costs_ = costs_beside_stages(plan_, scenario_);
  groups_ = stage_groups(plan_, 0);
  groups_.weight_gradient_last = structure_->weight_gradient_last;
  parts_.clear();
  if (divides_vocabulary()) parts_ = part_stages(plan_, blocks_.parts(scenario_, plan_), groups_);
  held_on_host_.clear();
  if (plan_.training.offload.activations) held_on_host_ = until_input(held_with(*structure_, more_));
  stage_costs_.clear();
  set_.clear();
  weighed_.clear();
  family_ = family;
}

void FastEvaluator::Impl::settle_structure(const PlanChoice& choice) {
  const ScheduleShape shape = schedule_shape(scenario_, choice);
  require_stages(static_cast<int>(plan_.model.layers.size()), shape.ranks * shape.chunks);
  const bool ports = exchange_ == PipelineExchange::synchronous;
  const StructureKey key{
      .schedule = choice.schedule.name,
      .ranks = shape.ranks,
      .microbatches = shape.microbatches,
      .chunks = shape.chunks,
      .slices = shape.slices,
      .group = shape.group,
      .update_every = shape.update_every,
      .overlap = shape.overlap,
      .vocabulary_barriers = shape.vocabulary_barriers,
      .recompute = recomputes_by_action(plan_),
      .data_parallel = plan_.layout.data.degree > 1,
      .gathering = weight_gathering(plan_.layout),
      .clips = plan_.training.gradient_clipping > 0,
      .tied = trains_tied_table(plan_),
      .exchange = exchange_,
      .ranks_per_machine = ports ? pipeline_ranks_per_machine(plan_.layout, plan_.cluster.machine) : 1};
  const StructureCache::Shorter shorter = structures_.shorter(key, plan_);
  structure_ = &structures_.structure(shorter.key, plan_);
  more_ = shorter.more;
}

// The cost of a stage that holds the blocks [first, last); valid until another family is settled.
const ComputeCost& FastEvaluator::Impl::cost_of(int stage, int first, int last) {
  const CompiledGraph& compiled = structure_->compiled;
  const auto own = static_cast<std::size_t>(stage);
  const auto rank = static_cast<std::size_t>(compiled.rank_of_stage[own]);
  const std::tuple key{runs_->number(first, last), compiled.stages_of_rank[rank].size(),
                       static_cast<bool>(groups_.weight_gradient_last[own])};
  const auto [found, is_new] = stage_costs_.try_emplace(key);
  if (is_new) {
    const std::vector<ComputeCost>& all = blocks_.blocks(*runs_);
    const std::span<const ComputeCost> blocks{all.begin() + first, all.begin() + last};
    found->second = cost_of_stage(plan_, blocks, runs_->run(first, last), stage, groups_);
  }
  return found->second;
}

// True only if no split of the family that fits has a step within `at_most`.
bool FastEvaluator::Impl::all_splits_exceed(Seconds at_most) {
  const CompiledGraph& compiled = structure_->compiled;
  const int count = stages(plan_.schedule);
  const SplitProblems problems = split_problems(plan_, blocks_.blocks(*runs_), held_with(*structure_, more_), stop_);
  const WeighedChain chain(problems.least);
  if (chain.most_stages_of_a_rank() == 1 || EqualLayers::are(chain)) return false;  // its search is the quicker one
  set_costs(uniform_split(static_cast<int>(plan_.model.layers.size()), count));     // messages cost what they do here
  SplitDurations durations{.fixed = durations_, .kinds = std::vector<std::vector<std::size_t>>(as_size(count))};
  for (std::size_t kind = 1; kind < compiled.durations.size(); ++kind) {
    const Node& node = compiled.durations[kind].node;
    if (node.kind == NodeKind::transfer || node.action.stage >= count) continue;
    durations.kinds[as_size(node.action.stage)].push_back(kind);
    durations.fixed[kind] = 0;
  }
  durations.of_run = [&](int stage, int first, int last, double* seconds) {
    costs_.stages[as_size(stage)] = cost_of(stage, first, last);
    for (const std::size_t kind : durations.kinds[as_size(stage)]) {
      *seconds++ = (time_alone(compiled.durations[kind].node, costs_) * compiled.durations[kind].turns).value;
    }
  };
  set_.clear();  // from here on costs_ has others, also if the proof is stopped
  return SplitProof(compiled, more_, chain, durations).none_within(at_most, times_);
}

void FastEvaluator::Impl::set_costs(const Split& split) {
  const CompiledGraph& compiled = structure_->compiled;
  const std::size_t count = split.layers.size();
  std::vector<bool> changed(count + parts_.size(), set_.empty());
  costs_.stages.resize(count + parts_.size());
  if (set_.empty()) std::ranges::copy(parts_, costs_.stages.begin() + static_cast<std::ptrdiff_t>(count));
  set_.resize(count);
  int first = 0;
  for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
    const bool head = stage + 1 == split.layers.size();
    const int last = first + split.layers[stage] + (stage == 0 ? 1 : 0) + (head ? 1 : 0);
    const ComputeCost& cost = cost_of(static_cast<int>(stage), first, last);
    changed[stage] = set_[stage] != &cost;
    if (changed[stage]) costs_.stages[stage] = *(set_[stage] = &cost);
    first = last;
  }
  set_durations(compiled, costs_, changed, durations_);
}

FullestOfCompiled FastEvaluator::Impl::fullest_rank() {
  const CompiledGraph& compiled = structure_->compiled;
  if (!times_.leaves_out()) return memory_.find(compiled, times_, costs_, 0);
  const double slack = 2 * left_out_tolerance * times_.makespan();
  const FullestOfCompiled most = memory_.find(compiled, times_, costs_, slack);
  if (most.exact || most.peak_bytes <= plan_.cluster.machine.device.memory.value) return most;
  // Whether it fits must be right.
  times_.time(compiled, durations_, more_, 0);
  return memory_.find(compiled, times_, costs_, 0);
}

Split FastEvaluator::Impl::dynamic_split(bool thorough) {
  const CompiledGraph& compiled = structure_->compiled;
  const Bytes limit = plan_.cluster.machine.device.memory.value;
  std::size_t nodes = compiled.graph_nodes;
  for (const CompiledLoop& loop : compiled.loops) nodes += static_cast<std::size_t>(more_) * loop.graph_nodes;
  const auto weigh_one = [&](const Split& split, Seconds below) -> WeighedSplit {
    const Estimate* const estimate = weigh_split(split, below);
    if (estimate == nullptr) return {.nodes = nodes};
    if (!estimate->fits) {
      return {.over = std::max(estimate->peak_bytes - limit, too_much_on_host(plan_, costs_, held_on_host_)),
              .nodes = nodes};
    }
    return {.step = estimate->iteration, .nodes = nodes};
  };
  SplitProblems problems = split_problems(plan_, blocks_.blocks(*runs_), held_with(*structure_, more_), stop_);
  SplitSearch search = split_search(plan_, thorough);
  if (thorough) {
    search.others = [this] {
      Plan chain = plan_;
      chain.costs = costs_;
      // Each of several loops has its part of the same microbatches.
      if (more_ > 0) chain.schedule.microbatches += more_ * structure_->compiled.loops.front().microbatches;
      return cuts_of_planners(cut_problem(scenario_, chain));
    };
  }
  const std::optional<Split> split = fastest_split(problems, WeighSplit(weigh_one), search);
  return split ? *split : split_without_limit(std::move(problems.least));
}

// Whether the family can be weighed from parts; then it is settled. Memory of slices of different lengths is not one
// sum for all of a stage's microbatches.
bool FastEvaluator::Impl::settles(const Family& family) {
  const bool sliced = !family.schedule.slice_tokens.empty() || family.schedule.slices_by == SlicesBy::work;
  if (sliced || family.schedule.given || is_made_for_times(family.schedule) ||
      costs_depend_on_split(family.recompute) || gathers_in_units(family.layout) || has_stage_data(family.layout)) {
    return false;
  }
  settle(family);
  return !needs_whole_plan();
}

Scenario FastEvaluator::Impl::asked() const {
  Scenario asked = scenario_;
  asked.software.exchange = exchange_;
  return asked;
}

Split FastEvaluator::Impl::refined(const Family& family) {
  if (settles(family)) return dynamic_split(true);
  return refined_slowly(asked(), family, stop_);
}

Estimate FastEvaluator::Impl::weigh(const Family& family, const SplitChoice& split, std::optional<Seconds> at_most) {
  const StopOnThread watch(stop_);
  if (!settles(family)) return weigh_slowly(asked(), family, split, {.stop = stop_, .at_most = at_most});
  if (at_most && split.method == SplitMethod::dynamic && all_splits_exceed(*at_most)) {
    throw SlowerThanAsked(Seconds{std::nextafter(at_most->value, longest_time.value)});
  }
  const Split chosen = choose_split(plan_, split, blocks_.blocks(*runs_), [&] { return dynamic_split(false); });
  const Estimate& estimate = *weigh_split(chosen, std::nullopt);
  if (estimate.fits || !offloads(plan_.training.offload)) return estimate;
  set_costs(chosen);
  require_host_memory(plan_, costs_, held_on_host_);
  return estimate;
}

// None where its step is not below `below`, which its times tell before its memory is looked at. Until the next call.
const Estimate* FastEvaluator::Impl::weigh_split(const Split& split, std::optional<Seconds> below) {
  const auto known = std::ranges::find(weighed_, split, &Estimate::split);
  if (known != weighed_.end()) return !below || known->iteration < *below ? &*known : nullptr;
  set_costs(split);
  times_.time(structure_->compiled, durations_, more_, left_out_tolerance);
  const Seconds step{times_.makespan()};
  if (below && step >= *below) return nullptr;
  const FullestOfCompiled fullest = fullest_rank();
  return &weighed_.emplace_back(Estimate{.iteration = step,
                                         .peak_bytes = fullest.peak_bytes,
                                         .fullest_rank = fullest.rank,
                                         .split = split,
                                         .fits = fullest.peak_bytes <= plan_.cluster.machine.device.memory.value &&
                                                 too_much_on_host(plan_, costs_, held_on_host_) <= Bytes{},
                                         .exact = fullest.exact});
}

const std::vector<ComputeCost>& FastEvaluator::Impl::bounded_blocks(const Family& family, BoundedFamily& bounded) {
  set_family(family);
  const std::optional<Schedule>& given = family.schedule.given;
  const ScheduleEntry* entry = given ? nullptr : &find_schedule(family.schedule.name);
  const ScheduleShape shape =
      schedule_shape(scenario_, {.microbatch = family.microbatch, .schedule = family.schedule, .split = {}});
  plan_.schedule = {};
  plan_.schedule.slices = given ? given->slices : shape.slices;
  plan_.schedule.slice_tokens = blocks_.slice_tokens(
      scenario_, plan_, {.microbatch = family.microbatch, .schedule = family.schedule, .split = {}});
  plan_.schedule.rank_of_stage.resize(static_cast<std::size_t>(stages_of(family.schedule, shape.ranks)));
  bounded.ranks = shape.ranks;
  bounded.stages = stages(plan_.schedule);
  bounded.passes = std::int64_t{shape.microbatches} * plan_.schedule.slices;
  bounded.splits_backward = given ? splits_backward(*given) : entry->splits_backward;
  bounded.redone = recomputes_by_action(plan_);
  bounded.hidden_in_pairs = plan_.software.hidden_in_pairs;
  bounded.overhead = plan_.software.step_overhead;
  bounded.replicas = given ? replicas(*given) : entry->trains_replicas ? 2 : 1;
  if (entry != nullptr && entry->most_held) {
    for (int rank = 0; rank < shape.ranks; ++rank) bounded.held.push_back(entry->most_held(shape, rank));
  }
  if (bounded.splits_backward) scenario_.software.exchange = PipelineExchange::asynchronous;
  if (divides_vocabulary()) {
    plan_.boundary = plan_boundary(plan_);
    bounded.parts = bounded_parts(blocks_.parts(scenario_, plan_), family.layout.vocabulary_barriers);
  }
  return blocks_.blocks(blocks_.runs(scenario_, plan_, bounded.splits_backward));
}

Seconds FastEvaluator::Impl::time_bound(const Family& family) {
  set_family(family);  // whose layout tells whether equal slices are possible
  if (const auto equal = with_equal_tokens(family, scenario_)) {
    return std::min(time_bound_as_asked(family), time_bound_as_asked(*equal));
  }
  return time_bound_as_asked(family);
}

Seconds FastEvaluator::Impl::time_bound_as_asked(const Family& family) {
  BoundedFamily bounded;
  const std::vector<ComputeCost>& blocks = bounded_blocks(family, bounded);
  return least_time(blocks, bounded);
}

Bytes FastEvaluator::Impl::memory_bound(const Family& family) {
  set_family(family);
  if (const auto equal = with_equal_tokens(family, scenario_)) {
    return std::min(memory_bound_as_asked(family), memory_bound_as_asked(*equal));
  }
  return memory_bound_as_asked(family);
}

Bytes FastEvaluator::Impl::memory_bound_as_asked(const Family& family) {
  BoundedFamily bounded;
  const std::vector<ComputeCost>& blocks = bounded_blocks(family, bounded);
  if (!costs_depend_on_split(family.recompute)) return least_memory(blocks, bounded);
  std::vector<ComputeCost> redone = blocks;  // as if every layer kept nothing
  for (ComputeCost& block : redone) block.kept_bytes = {};
  return least_memory(redone, bounded);
}

FastEvaluator::FastEvaluator(const Scenario& scenario, const Stop* stop)
    : impl_(std::make_unique<Impl>(scenario, stop)) {}
FastEvaluator::~FastEvaluator() = default;
FastEvaluator::FastEvaluator(FastEvaluator&&) noexcept = default;
FastEvaluator& FastEvaluator::operator=(FastEvaluator&&) noexcept = default;

Seconds FastEvaluator::time_bound(const Family& family) { return impl_->time_bound(family); }
Bytes FastEvaluator::memory_bound(const Family& family) { return impl_->memory_bound(family); }
Estimate FastEvaluator::weigh(const Family& family, const SplitChoice& split, std::optional<Seconds> at_most) {
  return impl_->weigh(family, split, at_most);
}
Split FastEvaluator::refined(const Family& family) { return impl_->refined(family); }

}  // namespace plumb
