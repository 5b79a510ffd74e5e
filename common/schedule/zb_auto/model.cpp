#include "common/schedule/zb_auto/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb::zb_auto {
namespace {

constexpr double rounding = 1e-12;  // of sums of a few thousand times, relative
constexpr auto where = "schedule zb-auto";

void require_sizes(const AutoProblem& problem) {
  if (problem.ranks < 1 || problem.microbatches < 1 || problem.stages.empty()) {
    throw InputError(where, fmt::format("{} ranks, {} microbatches, {} stages: each must be at least 1", problem.ranks,
                                        problem.microbatches, problem.stages.size()));
  }
  const std::size_t stages = problem.stages.size();
  if (stages > static_cast<std::size_t>(largest_schedule / problem.microbatches)) {
    throw InputError(where, fmt::format("{} stages × {} microbatches is more than {}", stages, problem.microbatches,
                                        largest_schedule));
  }
  const auto require = [](std::string_view what, std::size_t given, std::size_t expected) {
    if (given == expected) return;
    throw InputError(where, fmt::format("{} {}, but expected {}", given, what, expected));
  };
  require("ranks of stages", problem.rank_of_stage.size(), stages);
  if (!problem.hop.empty()) require("hops", problem.hop.size(), stages - 1);
  if (!problem.limit.empty()) require("limits", problem.limit.size(), static_cast<std::size_t>(problem.ranks));
}

void require_numbers(const AutoProblem& problem) {
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    const StageLoad& load = problem.stages[s];
    if (problem.rank_of_stage[s] < 0 || problem.rank_of_stage[s] >= problem.ranks) {
      throw InputError(where, fmt::format("stage {} on rank {}, but there are {} ranks", s, problem.rank_of_stage[s],
                                          problem.ranks));
    }
    for (const Seconds time : {load.forward, load.input_gradient, load.weight_gradient}) {
      if (!(time >= Seconds{0}) || time > longest_time) {
        throw InputError(where,
                         fmt::format("stage {} takes {} s, but expected 0 to {}", s, time.value, longest_time.value));
      }
    }
    if (load.kept < Bytes{0} || load.kept_for_weight < Bytes{0}) {
      throw InputError(where, fmt::format("stage {} keeps {} and {} bytes: neither may be negative", s, load.kept.value,
                                          load.kept_for_weight.value));
    }
  }
  for (const Seconds hop : problem.hop) {
    if (!(hop >= Seconds{0}) || hop > longest_time) {
      throw InputError(where, fmt::format("a hop of {} s, but expected 0 to {}", hop.value, longest_time.value));
    }
  }
}

// One microbatch goes forward through all stages of a rank before the first of them can free anything.
void require_room_for_one(const Model& model) {
  for (std::size_t r = 0; r < model.ranks; ++r) {
    std::int64_t share = 0;
    std::int64_t peak = 0;
    for (const std::size_t s : model.stages_of_rank[r]) share += model.change[step_of(s, Part::forward)];
    peak = share;
    for (auto s = model.stages_of_rank[r].rbegin(); s != model.stages_of_rank[r].rend(); ++s) {
      share += model.change[step_of(*s, Part::input_gradient)];
      peak = std::max(peak, share);
      share += model.change[step_of(*s, Part::weight_gradient)];
    }
    if (peak <= model.limit[r]) continue;
    throw InputError(where,
                     fmt::format("one microbatch keeps {} on rank {}, where {} is left for it", to_text(Bytes{peak}), r,
                                 model.limit[r] > 0 ? to_text(Bytes{model.limit[r]}) : "nothing"),
                     "recompute, or cut the stages smaller");
  }
}

}  // namespace

Model model_of(const AutoProblem& problem) {
  require_sizes(problem);
  require_numbers(problem);
  const std::size_t stages = problem.stages.size();
  Model model{.ranks = static_cast<std::size_t>(problem.ranks),
              .microbatches = static_cast<std::size_t>(problem.microbatches),
              .stages = stages,
              .rank_of_stage = {},
              .stages_of_rank = std::vector<std::vector<std::size_t>>(static_cast<std::size_t>(problem.ranks)),
              .seconds = std::vector<double>(3 * stages),
              .before = std::vector<Step>(3 * stages, no_step),
              .lag = std::vector<double>(3 * stages, 0),
              .after = std::vector<Step>(3 * stages, no_step),
              .change = std::vector<std::int64_t>(3 * stages),
              .limit = std::vector<std::int64_t>(static_cast<std::size_t>(problem.ranks),
                                                 std::numeric_limits<std::int64_t>::max()),
              .stop = problem.stop};
  for (std::size_t r = 0; r < problem.limit.size(); ++r) model.limit[r] = problem.limit[r].value;
  const auto connect = [&](Step from, Step to, double lag) {
    model.before[to] = from;
    model.lag[to] = lag;
    if (part_of(to) != Part::weight_gradient) model.after[from] = to;
  };
  for (std::size_t s = 0; s < stages; ++s) {
    const StageLoad& load = problem.stages[s];
    const Step f = step_of(s, Part::forward);
    const Step i = step_of(s, Part::input_gradient);
    const Step w = step_of(s, Part::weight_gradient);
    model.rank_of_stage.push_back(static_cast<std::size_t>(problem.rank_of_stage[s]));
    model.stages_of_rank[model.rank_of_stage[s]].push_back(s);
    model.seconds[f] = load.forward.value;
    model.seconds[i] = load.input_gradient.value;
    model.seconds[w] = load.weight_gradient.value;
    model.change[f] = load.kept.value;
    model.change[i] = load.kept_for_weight.value - load.kept.value;
    model.change[w] = -load.kept_for_weight.value;
    connect(i, w, 0);
    if (s == 0) continue;
    const bool same = model.rank_of_stage[s - 1] == model.rank_of_stage[s];
    const double hop = same || problem.hop.empty() ? 0 : problem.hop[s - 1].value;
    connect(step_of(s - 1, Part::forward), f, hop);
    connect(i, step_of(s - 1, Part::input_gradient), hop);
  }
  connect(step_of(stages - 1, Part::forward), step_of(stages - 1, Part::input_gradient), 0);
  require_room_for_one(model);
  return model;
}

bool reaches(const Score& score, double makespan) { return score.makespan <= makespan * (1 + rounding); }

bool better(const Score& a, const Score& b) {
  if (b.makespan == never) return a.makespan < never;
  const double margin = rounding * b.makespan;
  if (a.makespan < b.makespan - margin) return true;
  if (a.makespan > b.makespan + margin) return false;
  if (a.span < b.span - margin) return true;
  return a.span <= b.span + margin && a.fullest < b.fullest;
}

Clock::Clock(const Model& model) : model_(model), done_(model.steps()), next_(model.ranks), waits_for_(model.ranks) {
  times_.start.resize(model.actions());
  times_.place.resize(model.actions());
  times_.end.resize(model.ranks);
}

// How many actions the rank could do before one that has to wait.
std::size_t Clock::advance(const StepLists& lists, std::size_t rank) {
  const std::vector<Step>& list = lists[rank];
  double now = times_.end[rank];
  std::size_t at = next_[rank];
  for (; at < list.size(); ++at) {
    const Step step = list[at];
    const std::uint32_t k = done_[step];
    const Step before = model_.before[step];
    if (before != no_step) {
      if (done_[before] <= k) {
        waits_for_[rank] = before;
        break;
      }
      now = std::max(now, times_.start[model_.action(before, k)] + model_.seconds[before] + model_.lag[step]);
    }
    const std::size_t action = model_.action(step, k);
    times_.start[action] = now;
    times_.place[action] = static_cast<std::uint32_t>(at);
    now += model_.seconds[step];
    done_[step] = k + 1;
    const Step after = model_.after[step];
    if (after == no_step) continue;
    const std::size_t other = model_.rank_of(after);
    if (other != rank && waits_for_[other] == step) {
      waits_for_[other] = no_step;
      runnable_.push_back(other);
    }
  }
  times_.end[rank] = now;
  return at - std::exchange(next_[rank], at);
}

const Times& Clock::run(const StepLists& lists) {
  if (model_.stop != nullptr) model_.stop->check();
  std::ranges::fill(done_, 0U);
  std::ranges::fill(next_, std::size_t{0});
  std::ranges::fill(times_.end, 0.0);
  std::ranges::fill(waits_for_, no_step);
  runnable_.clear();
  for (std::size_t r = model_.ranks; r-- > 0;) runnable_.push_back(r);
  std::size_t count = 0;
  while (!runnable_.empty()) {
    const std::size_t rank = runnable_.back();
    runnable_.pop_back();
    count += advance(lists, rank);
  }
  times_.score = {};
  if (count != model_.actions()) return times_;
  times_.score = {.makespan = 0, .span = 0};
  for (std::size_t r = 0; r < model_.ranks; ++r) {
    if (lists[r].empty()) continue;
    times_.score.makespan = std::max(times_.score.makespan, times_.end[r]);
    times_.score.span = std::max(times_.score.span, times_.end[r] - times_.start[model_.action(lists[r].front(), 0)]);
  }
  return times_;
}

std::int64_t most_kept(const Model& model, const std::vector<Step>& list) {
  std::int64_t kept = 0;
  std::int64_t most = 0;
  for (const Step step : list) {
    kept += model.change[step];
    most = std::max(most, kept);
  }
  return most;
}

std::int64_t fullest(const Model& model, const StepLists& lists) {
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (std::size_t r = 0; r < model.ranks; ++r) most = std::max(most, most_kept(model, lists[r]) - model.limit[r]);
  return most;
}

}  // namespace plumb::zb_auto
