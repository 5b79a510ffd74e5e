#include "common/timeline/statistics.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/reductions.hpp"

namespace plumb {
namespace {

struct Interval {
  Seconds start;
  Seconds end;
};

// The same set of moments, in order and without overlap.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.start < b.start || (a.start == b.start && a.end < b.end);
  });
  std::vector<Interval> result;
  for (const Interval& interval : intervals) {
    if (interval.end <= interval.start) continue;
    if (!result.empty() && interval.start <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

Seconds length(const std::vector<Interval>& intervals) {
  Seconds sum;
  for (const Interval& interval : intervals) sum += interval.end - interval.start;
  return sum;
}

// Of two merged sets.
Seconds overlap(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  Seconds sum;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Seconds start = std::max(a[i].start, b[j].start);
    const Seconds end = std::min(a[i].end, b[j].end);
    if (start < end) sum += end - start;
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return sum;
}

struct RankIntervals {
  std::vector<Interval> compute;
  std::vector<Interval> communication;
  std::array<std::vector<Interval>, communication_uses.size()> by_use;  // of sums also what went beside the backward
  Seconds busy;                                                         // in F, B, I, W and R
  Interval span;                                                        // of these
  bool computes = false;
};

// Of two ranks, by what both name it and the lower of them; the events of a larger group say of themselves when the
// last rank entered it.
using PairOfRanks = std::pair<Action, int>;
std::optional<PairOfRanks> pair_of(const Event& event) {
  if (event.peer < 0) return std::nullopt;
  return std::pair(name_of_both(event.action), std::min(event.rank, event.peer));
}

std::map<PairOfRanks, Seconds> collective_starts(const StepTimeline& step) {
  std::map<PairOfRanks, Seconds> starts;
  for (const Event& event : step.events) {
    const std::optional<PairOfRanks> both = pair_of(event);
    if (track_of(event.action.kind) != Track::collective || !both) continue;
    const auto [found, added] = starts.try_emplace(*both, event.start);
    if (!added) found->second = std::max(found->second, event.start);
  }
  return starts;
}

CommunicationUse use_of(ActionKind kind) {
  if (track_of(kind) != Track::collective || joins_parts(kind)) return CommunicationUse::messages;
  return kind == ActionKind::unshard || kind == ActionKind::reshard ? CommunicationUse::weights
                                                                    : CommunicationUse::gradients;
}

std::vector<RankIntervals> rank_intervals(const StepTimeline& step, int ranks) {
  std::vector<RankIntervals> result(static_cast<std::size_t>(std::max(ranks, 0)));
  const std::map<PairOfRanks, Seconds> collectives = collective_starts(step);
  for (const Event& event : step.events) {
    if (event.rank < 0 || event.rank >= ranks) {
      throw InputError("timeline",
                       "has an event on rank " + std::to_string(event.rank) + " of " + std::to_string(ranks));
    }
    RankIntervals& rank = result[static_cast<std::size_t>(event.rank)];
    Interval interval{event.start, event.end};
    const Track track = track_of(event.action.kind);
    const std::optional<PairOfRanks> both = pair_of(event);
    if (track == Track::collective && both) interval.start = std::min(event.end, collectives.at(*both));
    if (track == Track::compute) {
      rank.compute.push_back(interval);
    } else if (track != Track::send) {
      rank.communication.push_back(interval);
      rank.by_use[static_cast<std::size_t>(use_of(event.action.kind))].push_back(
          {interval.start - event.beside, interval.end});
    }
    if (!is_compute(event.action.kind)) continue;
    rank.busy += interval.end - interval.start;
    rank.span = rank.computes
                    ? Interval{std::min(rank.span.start, interval.start), std::max(rank.span.end, interval.end)}
                    : interval;
    rank.computes = true;
  }
  return result;
}

double fraction(Seconds part, Seconds whole) { return whole.value > 0 ? part / whole : 0; }

}  // namespace

StepStatistics step_statistics(const StepTimeline& step, int ranks) {
  StepStatistics statistics{.iteration = step.duration, .ranks = {}};
  Seconds busy;
  Seconds longest_span;
  for (RankIntervals& rank : rank_intervals(step, ranks)) {
    const std::vector<Interval> compute = merged(std::move(rank.compute));
    const std::vector<Interval> communication = merged(std::move(rank.communication));
    RankStatistics entry;
    entry.compute = length(compute);
    entry.communication = length(communication);
    entry.exposed_communication = entry.communication - overlap(compute, communication);
    entry.idle = std::max(Seconds{}, step.duration - entry.compute - entry.exposed_communication);
    statistics.ranks.push_back(entry);
    busy += rank.busy;
    longest_span = std::max(longest_span, rank.span.end - rank.span.start);
  }
  if (ranks > 0) busy = busy / static_cast<double>(ranks);
  statistics.bubble_makespan_fraction = fraction(step.duration - busy, step.duration);
  statistics.bubble_span_fraction = fraction(longest_span - busy, longest_span);
  return statistics;
}

std::string_view name_of(CommunicationUse use) {
  switch (use) {
    case CommunicationUse::gradients:
      return "gradient sums";
    case CommunicationUse::weights:
      return "weight gathers";
    case CommunicationUse::messages:
      return "messages";
    case CommunicationUse::data_within:
      return "gathers and sums within actions";
    case CommunicationUse::tensor_within:
      return "tensor groups within actions";
  }
  return "";
}

std::string_view key_of(CommunicationUse use) {
  switch (use) {
    case CommunicationUse::gradients:
      return "gradients";
    case CommunicationUse::weights:
      return "weights";
    case CommunicationUse::messages:
      return "messages";
    case CommunicationUse::data_within:
      return "data_within";
    case CommunicationUse::tensor_within:
      return "tensor_within";
  }
  return "";
}

CommunicationTimes communication_times(const Timeline& timeline, const StepTimeline& step) {
  const int ranks = ranks_of(timeline);
  CommunicationTimes mean;
  const auto add = [&](CommunicationUse use, const CommunicationTime& time) {
    mean[static_cast<std::size_t>(use)] +=
        {time.on_its_way / static_cast<double>(ranks), time.hidden / static_cast<double>(ranks)};
  };
  for (const RankSummary& rank : timeline.ranks) {
    if (!rank.by_axis) continue;
    add(CommunicationUse::data_within, rank.by_axis->data_within.value_or(CommunicationTime{}));
    add(CommunicationUse::tensor_within, rank.by_axis->tensor_within.value_or(CommunicationTime{}));
  }
  for (RankIntervals& rank : rank_intervals(step, ranks)) {
    const std::vector<Interval> compute = merged(std::move(rank.compute));
    for (const CommunicationUse use : communication_uses) {
      const std::vector<Interval> intervals = merged(std::move(rank.by_use[static_cast<std::size_t>(use)]));
      add(use, {length(intervals), overlap(compute, intervals)});
    }
  }
  return mean;
}

std::vector<Seconds> exposure_uncertainty(const Timeline& timeline, const StepTimeline& step) {
  std::vector<Seconds> uncertainty(static_cast<std::size_t>(ranks_of(timeline)));
  for (const Event& event : step.events) {
    if (event.peer < 0 || track_of(event.action.kind) == Track::send) continue;  // a send exposes nothing
    uncertainty.at(static_cast<std::size_t>(event.rank)) += uncertainty_between(timeline, event.rank, event.peer);
  }
  return uncertainty;
}

double tokens_per_s(const Timeline& timeline, const StepTimeline& step) {
  return step.duration.value > 0 ? static_cast<double>(timeline.tokens_per_step) / step.duration.value : 0;
}

}  // namespace plumb
