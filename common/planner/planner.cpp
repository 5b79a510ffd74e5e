#include "common/planner/planner.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/graph/memory.hpp"
#include "common/layout/divisible.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/shortfall.hpp"
#include "common/planner/traffic.hpp"
#include "common/planner/unfolded_memory.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/split/coupled.hpp"

namespace plumb {
namespace {

// Pairs of a stage and a microbatch from which a schedule is long: to simulate it takes seconds and gigabytes.
constexpr std::int64_t long_schedule = 16'384;

bool is_long(const Schedule& schedule) {
  return std::int64_t{stages(schedule)} * schedule.microbatches * schedule.slices >= long_schedule;
}

// How long each rank has been idle before a given time, from the nodes that occupy it.
class IdleTime {
 public:
  IdleTime(const ScheduleGraph& graph, const Evaluation& evaluation, std::size_t rank) {
    spans_.reserve(graph.rank_order[rank].size());
    Seconds free_from;
    Seconds idle;
    for (const NodeId node : graph.rank_order[rank]) {
      const Seconds start = std::max(evaluation.start[node], free_from);
      idle += start - free_from;
      free_from = std::max(evaluation.end[node], start);
      spans_.push_back({.start = start, .end = free_from, .idle_before = idle});
    }
  }

  // A rank's messages come nearly in the order of time, so the search begins where the last one ended.
  [[nodiscard]] Seconds until(Seconds time) {
    while (next_ < spans_.size() && spans_[next_].start <= time) ++next_;
    while (next_ > 0 && spans_[next_ - 1].start > time) --next_;
    if (next_ == 0) return time;
    const Span& before = spans_[next_ - 1];
    return before.idle_before + std::max(time - before.end, Seconds{0});
  }

 private:
  struct Span {
    Seconds start;
    Seconds end;
    Seconds idle_before;  // this one's start
  };
  std::vector<Span> spans_;
  std::size_t next_ = 0;  // the first that starts after the last time asked for
};

StepTimeline step_of(const Schedule& lowered, const PipelineCosts& costs, const ScheduleGraph& graph,
                     const Evaluation& evaluation) {
  std::vector<IdleTime> idle;
  for (std::size_t rank = 0; rank < graph.rank_order.size(); ++rank) idle.emplace_back(graph, evaluation, rank);
  std::vector<Event> events;
  events.reserve(graph.nodes.size() + 1);  // the tied collective stands for two
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    look_at_stop();
    const Node& node = graph.nodes[id];
    Event event{.action = node.action,
                .rank = node.rank,
                .peer = node.peer,
                .start = evaluation.start[id],
                .end = evaluation.end[id],
                .waited = {},
                .bytes = node.bytes};
    if (node.kind == NodeKind::optimizer) {
      const HostMoves& moves = costs.stages[static_cast<std::size_t>(node.action.stage)].host_moves;
      event.bytes = moves.down + moves.up;
      event.waited = moves.copying_down + moves.copying_up;
    }
    if (gathers_weights(node.action.kind)) {
      const ComputeCost& cost = costs.stages[static_cast<std::size_t>(node.action.stage)];
      const bool both = copies_activations(node.action.kind);
      event.bytes = cost.parameter_moves.up + (both ? cost.activation_moves.kept : Bytes{});
      event.waited = cost.parameter_moves.copying + (both ? cost.activation_moves.copying : Seconds{});
    }
    const bool message = node.kind == NodeKind::transfer || node.kind == NodeKind::collective;
    const auto add = [&] {
      IdleTime& rank = idle[static_cast<std::size_t>(event.rank)];
      if (message) event.waited = rank.until(event.end) - rank.until(event.start);
      events.push_back(event);
    };
    add();
    if (node.kind != NodeKind::collective || is_folded(node)) continue;
    if (node.action.kind == ActionKind::clip_gradients) {
      const std::vector<int>& all = graph.groups[static_cast<std::size_t>(node.group)];
      for (auto rank = all.begin() + 1; rank != all.end(); ++rank) {
        event.rank = *rank;
        event.action = clip_of(lowered, *rank);
        add();
      }
      continue;
    }
    if (joins_parts(node.action.kind)) {
      for (int rank = 0; rank < lowered.ranks; ++rank) {
        if (rank == node.rank) continue;
        event.rank = rank;
        event.action.stage = part_on(lowered, node.action.stage, rank);
        add();
      }
      continue;
    }
    // The second rank of the pair takes part with its own action.
    std::swap(event.rank, event.peer);
    event.action = other_half(event.action, stages(lowered));
    add();
  }
  return ordered_step(std::move(events));
}

bool holds(const std::vector<SplitChoice>& splits, const SplitChoice& split) {
  return std::find(splits.begin(), splits.end(), split) != splits.end();
}

std::vector<SplitChoice> with_uniform(std::vector<SplitChoice> splits) {
  const SplitChoice uniform{.method = SplitMethod::uniform};
  if (!holds(splits, uniform)) splits.push_back(uniform);
  return splits;
}

void count_last(PlanningResult& result) {
  const Candidate& candidate = result.candidates.back();
  if (!candidate.built) {
    ++(candidate.unproven ? result.unproven : candidate.at_least ? result.bounded : result.pruned);
  } else {
    ++(candidate.engine == path_engine ? result.evaluated : result.simulated);
  }
}

// The uniform split for comparison comes behind the scenario's own: an early end must have one of these.
Turn turn_of(const Scenario& scenario, PlanChoice choice) {
  if (!holds(scenario.splits, choice.split)) choice.split = {.method = SplitMethod::dynamic};
  return turn_of(choice, choice.layout.value_or(scenario.layout),
                 choice.recompute.value_or(scenario.training.recompute));
}

bool is_long(const Scenario& scenario, const PlanChoice& choice) {
  const Layout& layout = choice.layout ? *choice.layout : scenario.layout;
  const std::int64_t step = std::max<std::int64_t>(1, choice.microbatch * batch_shards(layout));
  const std::int64_t microbatches = scenario.training.global_batch / step;
  return stages_of(choice.schedule, layout.pipeline) * microbatches * choice.schedule.slices >= long_schedule;
}

// Ascending by their places, which are all different.
void put_in_order(std::vector<Candidate>& candidates, const std::vector<std::size_t>& places) {
  std::map<std::size_t, Candidate> ordered;
  for (std::size_t n = 0; n < places.size(); ++n) ordered.emplace(places[n], std::move(candidates[n]));
  candidates.clear();
  for (auto& [place, candidate] : ordered) candidates.push_back(std::move(candidate));
}

std::vector<PlanChoice> all_choices(const Scenario& scenario) {
  std::vector<PlanChoice> choices;
  const std::vector<SplitChoice> splits = with_uniform(scenario.splits);
  for (const Layout& layout : layouts_of(scenario)) {
    for (const std::int64_t microbatch : scenario.microbatches) {
      for (const Recompute& recompute : recomputes_of(scenario)) {
        for (const Offload& offload : offloads_of(scenario)) {
          for (const ScheduleChoice& schedule : scenario.schedules) {
            for (const SplitChoice& split : splits) {
              choices.push_back({microbatch, schedule, split, layout, recompute, offload});
            }
          }
        }
      }
    }
  }
  return choices;
}

// How long an engine may take for a plan once the time is over.
constexpr std::chrono::duration<double> grace{0.3};

// A search that ended early may not have come to the uniform split that the best one stands beside in the table. Not
// where a schedule would be made for it: that may take seconds.
void add_uniform_of_best(PlanningResult& result, const Scenario& scenario, const Evaluator& evaluator) {
  const auto usable = [](const Candidate& candidate) { return candidate.own && candidate.fits; };
  const auto best = std::ranges::find_if(result.candidates, usable);
  if (best == result.candidates.end() || is_made_for_times(best->choice.schedule)) return;
  const std::optional<PlanChoice> uniform = missing_uniform(result.candidates, best->choice);
  if (!uniform) return;
  result.candidates.push_back(weigh_candidate(scenario, *uniform, within_grace(evaluator)));
  count_last(result);
  --result.left;
}

}  // namespace

Turn turn_of(const PlanChoice& choice, const Layout& layout, const Recompute& recompute) {
  const ScheduleChoice& schedule = choice.schedule;
  if (is_made_for_times(schedule)) return Turn::for_times;
  if (choice.split.method == SplitMethod::dynamic) {
    const bool several = !schedule.given && stages_of(schedule, layout.pipeline) > layout.pipeline;
    return several || costs_depend_on_split(recompute) ? Turn::several : Turn::searched;
  }
  const bool plain = !schedule.given && schedule.name == "1f1b";
  return plain && !has_stage_data(layout) ? Turn::likely : Turn::quick;
}

Evaluator within_grace(const Evaluator& engine) {
  return [&engine](const Plan& plan) {
    const Stop over(nullptr, deadline_after(grace));
    try {
      const StopOnThread watch(&over);
      return engine(plan);
    } catch (const Stopped&) {  // the longest path takes a small part of what simulation does
    }
    return predict_by_path(plan);
  };
}

std::optional<PlanChoice> missing_uniform(const std::vector<Candidate>& candidates, PlanChoice choice) {
  choice.split = {.method = SplitMethod::uniform};
  const auto same = [&](const Candidate& candidate) { return candidate.choice == choice; };
  return std::ranges::any_of(candidates, same) ? std::nullopt : std::optional(std::move(choice));
}

Candidate build_candidate(const Scenario& scenario, const PlanChoice& choice, const PlanEffort& effort) {
  Candidate candidate{.choice = choice, .own = holds(scenario.splits, choice.split)};
  try {
    if (choice.layout && scenario.layouts.size() > 1) require_divisible(scenario.model, *choice.layout);
    candidate.plan = make_plan(scenario, choice, effort);
    candidate.built = true;
  } catch (const TooLongToProve& error) {
    candidate.reason = error.problem();
    candidate.hint = error.hint();
    candidate.unproven = true;
  } catch (const SlowerThanAsked& slower) {
    candidate.reason =
        "takes at least " + to_text(slower.least) + ", more than the best so far: its schedule was not made";
    candidate.at_least = slower.least;
  } catch (const InputError& error) {
    candidate.reason = error.problem();
    candidate.hint = error.hint();
    candidate.where = error.where();
  }
  return candidate;
}

CandidatePrediction candidate_prediction(const Timeline& timeline) {
  return {.engine = timeline.producer, .iteration = median_step(timeline).duration, .ranks = timeline.ranks};
}

void add_prediction(Candidate& candidate, CandidatePrediction prediction) {
  candidate.engine = std::move(prediction.engine);
  candidate.iteration = prediction.iteration;
  candidate.ranks = std::move(prediction.ranks);
  candidate.peak_bytes = fullest_rank(candidate.ranks).summary.peak_bytes;
  candidate.fits = candidate.peak_bytes <= candidate.plan.cluster.machine.device.memory.value;
  if (!candidate.fits) candidate.reason = describe_shortfall(candidate);
}

Candidate predicted(Candidate candidate, const Evaluator& evaluator) {
  if (!candidate.built) return candidate;
  try {
    if (is_long(candidate.plan.schedule)) {  // in too little memory its messages pile up, in the engine too
      add_prediction(candidate, candidate_prediction(predict_by_path(candidate.plan)));
      if (!candidate.fits) return candidate;
    }
    add_prediction(candidate, candidate_prediction(evaluator(candidate.plan)));
  } catch (const NoRoomHere&) {
    throw;
  } catch (const InputError& error) {  // an order whose ranks wait for each other with messages that wait for both
    return {.choice = candidate.choice,
            .own = candidate.own,
            .reason = error.problem(),
            .hint = error.hint(),
            .where = error.where()};
  }
  return candidate;
}

Candidate weigh_candidate(const Scenario& scenario, const PlanChoice& choice, const Evaluator& evaluator,
                          const PlanEffort& effort) {
  return predicted(build_candidate(scenario, choice, effort), evaluator);
}

bool stands_before(const Candidate& a, const Candidate& b) {
  const auto order = [](const Candidate& x) { return x.fits ? 0 : x.built ? 1 : 2; };
  if (order(a) != order(b)) return order(a) < order(b);
  if (a.fits && a.iteration != b.iteration) return a.iteration < b.iteration;
  return a.peak_bytes < b.peak_bytes;
}

Timeline predicted_timeline(const Plan& plan, const Schedule& lowered, const ScheduleGraph& graph,
                            const Evaluation& evaluation, const std::string& engine) {
  Timeline timeline = timeline_head(plan, lowered, TimelineSource::predicted, engine);
  PredictedStep predicted = predicted_step(lowered, plan.costs, graph, evaluation);
  timeline.ranks = std::move(predicted.ranks);
  timeline.steps.push_back(std::move(predicted.step));
  timeline.memory = std::move(predicted.memory);
  tell_beside(timeline, plan);
  count_received(timeline, plan);
  return timeline;
}

PredictedStep predicted_step(const Schedule& lowered, const PipelineCosts& costs, const ScheduleGraph& graph,
                             const Evaluation& evaluation) {
  PredictedStep predicted{.ranks = {}, .step = step_of(lowered, costs, graph, evaluation), .memory = {}};
  const std::vector<RankOnHost> hosts = on_hosts(costs.stages, lowered);
  for (RankMemory& memory : memory_over_time(graph, evaluation, costs, lowered)) {
    const RankOnHost& host = hosts[predicted.ranks.size()];
    predicted.ranks.push_back({.parameter_bytes = memory.parameter_bytes,
                               .gradient_bytes = memory.gradient_bytes,
                               .optimizer_bytes = memory.optimizer_bytes,
                               .activation_bytes = sum(memory.peak.held),
                               .peak_bytes = memory.peak_bytes,
                               .received_bytes = {},
                               .peak = memory.peak,
                               .host_bytes = host.kept,
                               .host_copied_bytes = host.down + host.up});
    predicted.memory.push_back(std::move(memory.over_time));
  }
  return predicted;
}

Timeline predict_by_path(const Plan& plan) {
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return predicted_timeline(plan, lowered, graph, evaluate(graph), std::string(path_engine));
}

PlanningResult plan_scenario(const Scenario& scenario, const Evaluator& evaluator, const PlanningProgress& progress,
                             const Stop* stop) {
  PlanningResult result;
  const std::vector<PlanChoice> choices = all_choices(scenario);
  std::vector<std::pair<Turn, std::size_t>> order;
  for (std::size_t n = 0; n < choices.size(); ++n) order.emplace_back(turn_of(scenario, choices[n]), n);
  // A short work without a limit keeps the order of the file: SimGrid's last digits depend on what ran before.
  const bool limited = stop != nullptr && stop->has_deadline();
  if (limited || std::ranges::any_of(choices, [&](const PlanChoice& choice) { return is_long(scenario, choice); })) {
    std::ranges::sort(order);
  }
  std::vector<std::size_t> places;  // of the candidates among the choices
  Seconds best = longest_time;
  const auto usable = [](const Candidate& candidate) { return candidate.own && candidate.fits; };
  for (const auto& [turn, n] : order) {
    if (stop != nullptr && stop->ended()) break;
    try {
      const StopOnThread watch(stop);
      PlanEffort effort{.stop = stop};
      if (best < longest_time && is_long(scenario, choices[n])) effort.at_most = best;
      result.candidates.push_back(weigh_candidate(scenario, choices[n], evaluator, effort));
    } catch (const Stopped&) {
      break;
    }
    count_last(result);
    places.push_back(n);
    if (usable(result.candidates.back())) best = std::min(best, result.candidates.back().iteration);
    if (progress) progress(static_cast<int>(places.size()), static_cast<int>(choices.size()), best);
  }
  result.left = std::ssize(choices) - std::ssize(result.candidates);
  put_in_order(result.candidates, places);
  if (result.left > 0 && std::ranges::none_of(result.candidates, usable)) throw_ended_early();
  std::stable_sort(result.candidates.begin(), result.candidates.end(), stands_before);
  if (result.left > 0) {
    add_uniform_of_best(result, scenario, evaluator);
    std::stable_sort(result.candidates.begin(), result.candidates.end(), stands_before);
  }
  return result;
}

void throw_ended_early() {
  throw RunError("search", "was ended before it found a candidate that fits", "give it more time");
}

const Candidate& best_fitting(const PlanningResult& result, const Scenario& scenario) {
  for (const Candidate& candidate : result.candidates) {
    if (candidate.own && candidate.fits) return candidate;
  }
  throw_nothing_fits(result, scenario);
}

}  // namespace plumb
