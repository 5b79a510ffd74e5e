#include "sim/commands/planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>

#include "common/base/end_requests.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/scenario_file/stage_data_choices.hpp"

namespace plumb::sim {
namespace {

std::atomic<bool> interrupted = false;
EndRequests requests;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

// The first request keeps the best so far, the second ends the program as it would end any other.
void take_interrupt(int signal) {
  interrupted = true;
  if (requests.take() == 1) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Takes Ctrl-C and SIGTERM, as of a batch system whose time is over, as long as it lives, and to the program's end once
// one has come.
class InterruptWatch {
 public:
  InterruptWatch() {
    requests.reset();
    interrupted = false;
    struct sigaction action = {};
    action.sa_handler = take_interrupt;
    action.sa_flags = SA_RESTART;
    for (std::size_t n = 0; n < taken.size(); ++n) ::sigaction(taken[n], &action, &before_[n]);
  }
  // Once it was interrupted the program ends, and what belongs to the same request must not end it sooner.
  ~InterruptWatch() {
    if (interrupted) return;
    for (std::size_t n = 0; n < taken.size(); ++n) ::sigaction(taken[n], &before_[n], nullptr);
  }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  static constexpr std::array<int, 2> taken = {SIGINT, SIGTERM};
  std::array<struct sigaction, taken.size()> before_ = {};
};

std::optional<std::chrono::duration<double>> time_limit_of(const PlanningOptions& options) {
  if (!options.time_limit) return std::nullopt;
  return std::chrono::duration<double>(*options.time_limit);
}

// Behind "78978 of 114660": most of the rest may be dropped at once, at the end.
std::string search_note(const SearchProgress& now) {
  std::string note = now.weighed > 0 ? fmt::format("{} weighed", now.weighed) : "";
  const auto add = [&](const std::string& text) { note += (note.empty() ? "" : ", ") + text; };
  if (now.left_is_known) {
    add(fmt::format("{} left to weigh", now.total - now.done - now.beyond));
    if (now.beyond > 0) add(fmt::format("{} too slow by their bounds", now.beyond));
  }
  if (now.predicted + now.to_predict > 0) {
    add(fmt::format("{} simulated, {} left to simulate", now.predicted, now.to_predict));
  }
  if (now.best) add("best so far " + to_text(*now.best));
  return note;
}

Planned searched(const Scenario& scenario, const Evaluator& engine, const PlanningOptions& options) {
  const SearchSpace space(scenario);
  const InterruptWatch watch;
  Progress progress("planning");
  SearchOptions asked{.top = options.top,
                      .jobs = options.jobs > 0 ? options.jobs : usable_cores(),
                      .processes = options.jobs > 0 ? options.jobs : usable_cores(),
                      .prune = !options.all_sizes,
                      .bound = !options.all_times,
                      .pareto = options.pareto,
                      .time_limit = time_limit_of(options),
                      .stop = &interrupted};
  asked.progress = [&](const SearchProgress& now) { progress.update(now.done, now.total, search_note(now)); };
  SearchResult found = search(space, fast_weigher, engine, asked);
  Planned planned{.planning = std::move(found.planning),
                  .searched = true,
                  .finished = found.finished,
                  .not_predicted = found.not_predicted,
                  .candidates = found.candidates,
                  .explanation = std::move(found.explanation)};
  for (const ParetoPoint& point : found.pareto) {
    planned.pareto.push_back({space.choice(point.candidate), point.iteration, point.peak_bytes});
  }
  return planned;
}

// Of candidates in the order of time, those that need less memory than all before them.
std::vector<ParetoRow> front_of(const std::vector<Candidate>& candidates) {
  std::vector<ParetoRow> front;
  for (const Candidate& candidate : candidates) {
    if (!candidate.own || !candidate.fits) continue;
    if (!front.empty() && candidate.peak_bytes >= front.back().peak_bytes) continue;
    front.push_back({candidate.choice, candidate.iteration, candidate.peak_bytes});
  }
  return front;
}

Planned all_weighed(const Scenario& scenario, const Evaluator& engine, const PlanningOptions& options) {
  const InterruptWatch watch;
  Progress progress("planning");
  int done_so_far = 0;
  auto in_all = static_cast<int>(combinations(scenario));
  Seconds best = longest_time;
  const auto note = [&] { return best < longest_time ? "best so far " + to_text(best) : std::string(); };
  const auto limit = time_limit_of(options);
  const Stop stop = Stop(&interrupted, limit ? deadline_after(*limit) : std::nullopt).looked_at_by([&] {
    progress.update(done_so_far, in_all, note());
  });
  const auto tell = [&](int done, int total, Seconds best_so_far) {
    done_so_far = done;
    in_all = total;
    best = best_so_far;
    progress.update(done, total, note());
  };
  Planned planned{.planning = plan_scenario(scenario, engine, tell, &stop)};
  std::vector<Candidate>& candidates = planned.planning.candidates;
  planned.candidates = std::ssize(candidates) + planned.planning.left;
  planned.finished = planned.planning.left == 0;
  LeftOutLog log;
  for (const Candidate& candidate : candidates) {
    const Layout& layout = candidate.choice.layout.value_or(scenario.layout);
    if (candidate.unproven) {
      log.unproven(candidate.reason, 1);
    } else if (candidate.at_least) {
      log.too_slow(layout, *candidate.at_least, 1);
    } else if (!candidate.built) {
      log.cannot_be_built(candidate.reason, 1);
    } else if (!candidate.fits) {
      log.too_large(LeftOutWhy::does_not_fit, layout, candidate.peak_bytes, 1);
    }
  }
  planned.explanation = log.sorted();
  if (options.pareto) planned.pareto = front_of(candidates);
  return planned;
}

}  // namespace

bool has_fitting(const PlanningResult& result) {
  return std::ranges::any_of(result.candidates, [](const Candidate& one) { return one.own && one.fits; });
}

Planned plan_openly(const Scenario& scenario, const Evaluator& engine, const PlanningOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Planned planned =
      leaves_layout_open(scenario) ? searched(scenario, engine, options) : all_weighed(scenario, engine, options);
  // What is not made is no candidate, and is told once all the same.
  if (const auto why = why_no_divided_stage_data(scenario)) {
    const auto behind = std::ranges::find_if(
        planned.explanation, [](const LeftOut& group) { return group.why != LeftOutWhy::cannot_be_built; });
    planned.explanation.insert(behind, LeftOut{.reason = *why});
  }
  planned.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return planned;
}

}  // namespace plumb::sim
