// A vocabulary divided over the ranks (arXiv 2411.05288): activations p + b with b barriers, the bubble of the schedule
// without it, and times as an evaluation that knows nothing of the graph.
#include <array>
#include <map>

#include "common/schedule/validate/validate.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "tests/common/graph/closed_forms.hpp"

using namespace plumb;

namespace {

struct PartTimes {
  int f = 0;  // of a part of the head
  int i = 0;
  int w = 0;
  int join = 0;  // of whatever joins the parts
};

Schedule divided(const char* name, int p, int m, int barriers) {
  return generate_schedule(name, {.ranks = p, .microbatches = m, .vocabulary_barriers = barriers});
}

PipelineCosts costs_of(const Schedule& schedule, const Times& times, const PartTimes& parts) {
  const auto seconds = [](int value) { return Seconds{static_cast<double>(value)}; };
  PipelineCosts costs = even_costs(3 * schedule.ranks, {.forward = seconds(times.f),
                                                        .input_gradient = seconds(times.i),
                                                        .weight_gradient = seconds(times.w),
                                                        .hop = seconds(times.hop)});
  const JoinCost join{.latency = seconds(parts.join), .alone = seconds(parts.join)};
  costs.vocabulary = {schedule.ranks, join, join, join, join, join};
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    ComputeCost& head = costs.stages[static_cast<std::size_t>(schedule.ranks + rank)] = {};
    head.forward = seconds(parts.f);
    head.input_gradient = seconds(parts.i);
    head.weight_gradient = seconds(parts.w);
    costs.stages[static_cast<std::size_t>(2 * schedule.ranks + rank)] = {};
  }
  return costs;
}

double makespan(const Schedule& schedule, const Times& times, const PartTimes& parts) {
  return evaluate(build_graph(lower(schedule, {.optimizer = false}), costs_of(schedule, times, parts))).makespan.value;
}

// Every action when those before it in its list and what the paper's figures 5 and 7 let it wait for have ended. The
// lists alone count, stages by their numbers: p of layers, p of the head, p of the embedding. What joins the parts goes
// over one stream, in the order in which the last rank's list needs it.
class Reference {
 public:
  Reference(const Schedule& schedule, const Times& times, const PartTimes& parts)
      : lists_(schedule.actions), p_(schedule.ranks), two_(schedule.vocabulary_barriers == 2), t_(times), v_(parts) {}

  int makespan() {
    std::vector<std::size_t> next(lists_.size(), 0);
    std::vector<int> free_at(lists_.size(), 0);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
        while (next[rank] < lists_[rank].size()) {
          const Action& action = lists_[rank][next[rank]];
          const int ready = ready_at(action);
          if (ready < 0) break;
          free_at[rank] = std::max(free_at[rank], ready) + ticks(action);
          ended_[action] = free_at[rank];
          ++next[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      if (next[rank] < lists_[rank].size()) return -1;
    }
    return std::ranges::max(free_at);
  }

 private:
  [[nodiscard]] int ticks(const Action& action) const {
    const bool layers = action.stage < p_;
    const bool head = !layers && action.stage < 2 * p_;
    const std::array<int, 3> all = layers ? std::array{t_.f, t_.i, t_.w} : std::array{v_.f, v_.i, v_.w};
    if (!layers && !head) return 0;
    switch (action.kind) {
      case ActionKind::forward:
        return all[0];
      case ActionKind::input_gradient:
        return all[1];
      case ActionKind::weight_gradient:
        return all[2];
      default:
        return all[1] + all[2];
    }
  }

  // −1: it has not ended.
  [[nodiscard]] int end(ActionKind kind, int stage, int k) const {
    const auto found = ended_.find({kind, stage, k});
    return found == ended_.end() ? -1 : found->second;
  }
  [[nodiscard]] int gradient(int stage, int k) const {
    return std::max(end(ActionKind::backward, stage, k), end(ActionKind::input_gradient, stage, k));
  }
  [[nodiscard]] int all_of(int first, int k, bool forward) const {
    int last = 0;
    for (int stage = first; stage < first + p_; ++stage) {
      const int one = forward ? end(ActionKind::forward, stage, k) : gradient(stage, k);
      if (one < 0) return -1;
      last = std::max(last, one);
    }
    return last;
  }
  static int plus(int time, int more) { return time < 0 ? -1 : time + more; }

  [[nodiscard]] int ready_at(const Action& action) const {
    const int s = action.stage;
    const int k = action.microbatch;
    const bool forward = action.kind == ActionKind::forward;
    if (s < p_) {
      if (action.kind == ActionKind::weight_gradient) return 0;
      if (forward) {
        return s == 0 ? plus(all_of(2 * p_, k, true), v_.join) : plus(end(ActionKind::forward, s - 1, k), t_.hop);
      }
      if (s < p_ - 1) return plus(gradient(s + 1, k), t_.hop);
      return plus(all_of(p_, k, false), two_ ? v_.join : 2 * v_.join);
    }
    if (s < 2 * p_) {
      if (forward) return plus(end(ActionKind::forward, p_ - 1, k), v_.join);
      if (action.kind == ActionKind::backward) return plus(all_of(p_, k, true), v_.join);
      return action.kind == ActionKind::weight_gradient ? plus(all_of(p_, k, false), v_.join) : 0;
    }
    return forward ? 0 : plus(gradient(0, k), v_.join);
  }

  const std::vector<std::vector<Action>>& lists_;
  int p_;
  bool two_;
  Times t_;
  PartTimes v_;
  std::map<Action, int> ended_;
};

void for_divided(const auto& check) {
  for (const char* name : {"1f1b", "zb-h1"}) {
    for (const int barriers : {1, 2}) {
      for (int p = 2; p <= std::min(largest_p, 12); ++p) {
        for (int m = 1; m <= std::min(largest_m, 40); m += p < 5 ? 1 : 3) {
          CAPTURE(name, barriers, p, m);
          check(name, barriers, p, m);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("a divided vocabulary: the schedules are valid, as they are and with their messages") {
  for_divided([](const char* name, int barriers, int p, int m) {
    const Schedule schedule = divided(name, p, m, barriers);
    for (const Schedule& each : {schedule, lower(schedule, {})}) {
      const std::vector<ScheduleProblem> problems = validate(each);
      CHECK(problems.empty());
      if (!problems.empty()) FAIL(problems.front().text);
    }
  });
}

TEST_CASE("a divided vocabulary: rank r of 1F1B holds min(m, p−r+b) microbatches, of ZB-H1 min(m, p+b)") {
  for_divided([](const char* name, int barriers, int p, int m) {
    const std::vector<int> peaks = peak_parts(divided(name, p, m, barriers));
    for (int r = 0; r < p; ++r) {
      const int held = name == std::string_view("1f1b") ? p - r + barriers : p + barriers;
      CHECK(peaks[static_cast<std::size_t>(r)] == std::min(m, held));
    }
  });
}

TEST_CASE("a divided vocabulary: parts that take no time leave 1F1B's makespan, (m+p−1)(F+B), for F = I = W") {
  for_divided([](const char* name, int barriers, int p, int m) {
    if (name != std::string_view("1f1b")) return;
    const double more = makespan(divided(name, p, m, barriers), {.f = 1, .i = 1, .w = 1}, {}) - 3 * (m + p - 1);
    CHECK(more >= 0);
    if (m >= p + barriers) CHECK(more == 0);
  });
}

// As the registry and docs/reference/schedules.md say it: (p−1)(F+B), with one barrier min(w, B) less.
TEST_CASE("a divided vocabulary: the bubble of 1F1B whatever its parts take, for F = B/2") {
  std::mt19937 random(61);
  for_divided([&](const char* name, int barriers, int p, int m) {
    if (name != std::string_view("1f1b") || m < p + barriers) return;
    const int f = random_in(random, 1, 9);
    const int i = random_in(random, 0, 2 * f);
    const PartTimes parts{random_in(random, 0, 30), random_in(random, 0, 30), random_in(random, 0, 30), 0};
    CAPTURE(f, i, parts.f, parts.i, parts.w);
    const double busy = m * (3 * f + parts.f + parts.i + parts.w);
    const double bubble = makespan(divided(name, p, m, barriers), {.f = f, .i = i, .w = 2 * f - i}, parts) - busy;
    CHECK(bubble == (p - 1) * 3 * f - (barriers == 1 ? std::min(parts.w, 2 * f) : 0));
  });
}

TEST_CASE(
    "a divided vocabulary: with up to four ranks the bubble of ZB-H1 is that of the whole one, with more longer") {
  for_divided([](const char* name, int barriers, int p, int m) {
    if (name != std::string_view("zb-h1") || m < 2 * p + barriers) return;
    const double bubble = makespan(divided(name, p, m, barriers), {.f = 1, .i = 1, .w = 1}, {}) - 3 * m;
    CHECK((p <= 4 ? bubble == p - 1 : bubble > p - 1));
  });
}

TEST_CASE("a divided vocabulary: synchronous exchanges make 1F1B's makespan at most one F longer") {
  for_divided([](const char* name, int barriers, int p, int m) {
    if (name != std::string_view("1f1b") || m < p + barriers) return;
    const Schedule lowered = lower(divided(name, p, m, barriers), {.optimizer = false});
    PipelineCosts costs = costs_of(lowered, {.f = 1, .i = 1, .w = 1}, {});
    costs.exchange = PipelineExchange::synchronous;
    const double more = evaluate(build_graph(lowered, costs)).makespan.value - 3 * (m + p - 1);
    CHECK(more >= 0);
    CHECK(more <= 1);
  });
}

TEST_CASE("a divided vocabulary: times as an evaluation of the lists alone") {
  std::mt19937 random(53);
  for_divided([&](const char* name, int barriers, int p, int m) {
    Times times = random_times(random);
    times.hop = random_in(random, 0, 5);
    const PartTimes parts{random_in(random, 0, 9), random_in(random, 0, 9), random_in(random, 0, 9), 0};
    const Schedule schedule = divided(name, p, m, barriers);
    CHECK(makespan(schedule, times, parts) == Reference(schedule, times, parts).makespan());
  });
}
