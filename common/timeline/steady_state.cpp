#include "common/timeline/steady_state.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

constexpr double missing = -1;
constexpr int fewest_repeats = 3;

bool is_drawn(const Action& action) {
  return is_compute(action.kind) || is_eviction(action.kind) || action.kind == ActionKind::optimizer_step;
}

// A part of the step that repeats with one period.
struct Steady {
  double from = 0;
  double period = 0;
  int repeats = 0;
  [[nodiscard]] double hidden() const { return period * std::max(0, repeats - 1); }
};

class Search {
 public:
  Search(const StepTimeline& step, const Schedule& schedule)
      : schedule_(schedule), length_(step.duration.value), slack_(1e-9 * length_), updates_(updates(schedule)) {
    const std::size_t pairs = schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.microbatches);
    for (const Event& event : step.events) {
      if (!is_drawn(event.action) || !in_range(schedule, event.action)) continue;
      events_.push_back(&event);
      auto& starts = starts_[static_cast<std::size_t>(event.action.kind)];
      if (starts.empty()) starts.assign(pairs, missing);
      if (event.action.microbatch != no_microbatch) starts[place(event.action)] = event.start.value;
    }
  }

  [[nodiscard]] Steady best() const {
    Steady best;
    const int most = schedule_.microbatches / replicas(schedule_) / fewest_repeats;
    for (const int shift : shifts(most)) {
      const Steady steady = with_shift(shift);
      if (steady.repeats >= fewest_repeats && steady.hidden() > best.hidden() * 1.05) best = steady;
      if (best.hidden() > length_ / 2) break;
    }
    return best;
  }

 private:
  [[nodiscard]] std::size_t place(const Action& action) const {
    return static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(schedule_.microbatches) +
           static_cast<std::size_t>(action.microbatch);
  }

  // What schedules move on by: a microbatch, a few, a group of as many as there are ranks, an update.
  [[nodiscard]] std::set<int> shifts(int most) const {
    std::set<int> wanted = {1,
                            2,
                            3,
                            4,
                            schedule_.slices,
                            schedule_.ranks,
                            2 * schedule_.ranks,
                            std::max(1, schedule_.ranks / 2),
                            std::max(1, schedule_.update_every)};
    // A group of the interleaved schedules: the microbatches of the first stage before its rank runs another one's.
    int group = 0;
    const std::vector<Action>& first = schedule_.actions.front();
    while (static_cast<std::size_t>(group) < first.size() && first[static_cast<std::size_t>(group)].stage == 0) ++group;
    if (group > 0) wanted.insert(group);
    std::erase_if(wanted, [&](int shift) { return shift > most; });
    return wanted;
  }

  // When the action starts that is `shift` microbatches on.
  [[nodiscard]] double start_of(Action action, int shift) const {
    if (action.kind == ActionKind::optimizer_step) {
      if (updates_ == 0 || shift % schedule_.update_every != 0) return missing;
      action.microbatch += shift / schedule_.update_every;
      if (action.microbatch < 0 || action.microbatch >= updates_) return missing;
    } else {
      const int replica = replica_of(schedule_, action.microbatch);
      action.microbatch += shift;
      if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches) return missing;
      if (replica_of(schedule_, action.microbatch) != replica) return missing;
    }
    return starts_[static_cast<std::size_t>(action.kind)][place(action)];
  }

  // From the middle of the step.
  [[nodiscard]] double period_of(int shift) const {
    const int middle = (schedule_.microbatches / replicas(schedule_) - shift) / 2;
    const Action forward{ActionKind::forward, stages(schedule_) - 1, middle};
    const double before = start_of(forward, 0);
    const double after = start_of(forward, shift);
    return before == missing || after == missing ? 0 : after - before;
  }

  // An action without its like one period later may only stand in the last repeat, one without its like before only in
  // the first: both must not begin in [from, from + (repeats − 1) · period), the latter moved back by a period.
  [[nodiscard]] Steady with_shift(int shift) const {
    const double period = period_of(shift);
    if (!(period > slack_)) return {};
    std::vector<double> breaks = {-slack_, length_ - period};
    for (const Event* event : events_) {
      const double start = event->start.value;
      const auto like = [&](int by, double time) {
        const double other = start_of(event->action, by);
        return other != missing && std::abs(other - time) <= slack_;
      };
      if (!like(shift, start + period)) breaks.push_back(start);
      if (start - period > -slack_ && !like(-shift, start - period)) breaks.push_back(start - period);
    }
    std::ranges::sort(breaks);
    std::size_t widest = 1;
    for (std::size_t i = 1; i < breaks.size() && breaks[i] <= length_ - period + slack_; ++i) {
      if (breaks[i] - breaks[i - 1] > breaks[widest] - breaks[widest - 1]) widest = i;
    }
    // What began before may still run: the first time, and any later one, whose like may begin earlier than the first.
    const double begin = breaks[widest - 1];
    double from = std::max(0.0, begin);
    for (const Event* event : events_) {
      if (event->start.value <= begin + slack_) from = std::max(from, event->end.value);
      const double moved = event->start.value - period;
      if (moved > -slack_ && moved <= begin + slack_) from = std::max(from, event->end.value - period);
    }
    const double until = breaks[widest] + period;
    return {.from = from, .period = period, .repeats = static_cast<int>((until - from + slack_) / period)};
  }

  const Schedule& schedule_;
  const double length_;
  const double slack_;  // of sums of times that are the same
  const int updates_;
  std::vector<const Event*> events_;
  std::array<std::vector<double>, static_cast<std::size_t>(ActionKind::optimizer_step) + 1>
      starts_;  // by kind and place
};

}  // namespace

std::vector<Segment> steady_segments(const StepTimeline& step, const Schedule& schedule) {
  const Segment whole{.from = {}, .to = step.duration};
  if (!(step.duration.value > 0)) return {whole};
  const Steady steady = Search(step, schedule).best();
  if (steady.repeats < fewest_repeats) return {whole};
  const double end = steady.from + steady.repeats * steady.period;
  std::vector<Segment> segments;
  if (steady.from > 0) segments.push_back({.from = {}, .to = {steady.from}});
  segments.push_back({.from = {steady.from}, .to = {steady.from + steady.period}, .repeats = steady.repeats});
  if (step.duration.value - end > 1e-9 * step.duration.value) segments.push_back({.from = {end}, .to = step.duration});
  return segments;
}

}  // namespace plumb
