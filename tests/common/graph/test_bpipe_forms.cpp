// BPipe: 1F1B's time in less memory.
#include <algorithm>
#include <map>
#include <optional>

#include "common/schedule/validate/validate.hpp"
#include "tests/common/graph/closed_forms.hpp"

using namespace plumb;

namespace {

Schedule bpipe(int p, int m) { return generate_schedule("bpipe", {.ranks = p, .microbatches = m}); }
bool is_half_of_eviction(const Action& action) { return is_eviction(action.kind); }

std::vector<int> some_microbatches(int p) { return {1, 2, p - 1 + (p == 1), p, p + 1, 2 * p + 3, 5 * p, 64}; }

// When the last rank is through its list if every receiving half, of messages and of evictions, blocks its rank; −1 if
// the ranks wait for each other forever.
int blocking_makespan(const Schedule& schedule, const Times& t) {
  std::vector<std::size_t> next(schedule.actions.size(), 0);
  std::vector<int> now(schedule.actions.size(), 0);
  std::map<std::pair<std::size_t, Action>, int> ended;  // by rank
  const auto step = [&](std::size_t rank) {
    const Action& action = schedule.actions[rank][next[rank]];
    const auto stage = static_cast<std::size_t>(action.stage);
    const int last = stages(schedule) - 1;
    std::optional<std::pair<std::size_t, Action>> input;
    int duration = 0;
    if (action.kind == ActionKind::forward) {
      duration = t.f;
      if (stage > 0) input = {stage - 1, {action.kind, action.stage - 1, action.microbatch}};
    } else if (action.kind == ActionKind::backward) {
      duration = t.b();
      if (action.stage < last) input = {stage + 1, {action.kind, action.stage + 1, action.microbatch}};
    } else if ((rank == stage) == (action.kind == ActionKind::load)) {
      input = {schedule.actions.size() - 1 - rank, action};
    }
    if (input) {
      const auto found = ended.find(*input);
      if (found == ended.end()) return false;
      now[rank] = std::max(now[rank], found->second);
    }
    now[rank] += duration;
    ended[{rank, action}] = now[rank];
    ++next[rank];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      while (next[rank] < schedule.actions[rank].size() && step(rank)) moved = true;
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] < schedule.actions[rank].size()) return -1;
  }
  return std::ranges::max(now);
}

}  // namespace

TEST_CASE("BPipe without its evictions is 1F1B") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      CAPTURE(p, m);
      Schedule schedule = bpipe(p, m);
      for (auto& list : schedule.actions) std::erase_if(list, is_half_of_eviction);
      CHECK(schedule.actions == generate_schedule("1f1b", {.ranks = p, .microbatches = m}).actions);
    }
  }
}

TEST_CASE("BPipe: makespan (m+p−1)(F+B)") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      const Schedule schedule = bpipe(p, m);
      std::mt19937 random(static_cast<unsigned>(100 * p + m));
      for (int round = 0; round < 5; ++round) {
        const Times t = random_times(random);
        CAPTURE(p, m, t.f, t.i, t.w);
        CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all());
      }
    }
  }
}

TEST_CASE("BPipe: the same for B ≤ 3F if a rank stands still until what it receives was sent, evictions too") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      const Schedule schedule = bpipe(p, m);
      std::mt19937 random(static_cast<unsigned>(100 * p + m));
      for (int round = 0; round < 5; ++round) {
        Times t = random_times(random);
        const int b = random_in(random, 1, 3 * t.f);
        t.w = b / 3;
        t.i = b - t.w;
        CAPTURE(p, m, t.f, b);
        CHECK(blocking_makespan(schedule, t) == (m + p - 1) * (t.f + b));
      }
    }
  }
}

// Kim et al., ICML 2023, section 3: ⌈(p+2)/2⌉ bounds every rank; the evicting ones reach it.
TEST_CASE("BPipe holds at most ⌈(p+2)/2⌉ microbatches on any rank, its partner's counted, in order and in time") {
  for (int p = 1; p <= largest_p; ++p) {
    const int cap = (p + 3) / 2;
    PipelineCosts costs =
        even_costs(p, {.forward = Seconds{1}, .input_gradient = Seconds{1}, .weight_gradient = Seconds{1}});
    for (ComputeCost& stage : costs.stages) stage.kept_bytes = stage.kept_for_weight_bytes = Bytes{1};
    costs.inside.bandwidth = costs.outside.bandwidth = {1e300};  // what is on its way for no time counts nothing
    for (const int m : some_microbatches(p)) {
      CAPTURE(p, m);
      const Schedule lowered = lower(bpipe(p, m), {});
      const ScheduleGraph graph = build_graph(lowered, costs);
      const std::vector<RankMemory> in_time = memory_over_time(graph, evaluate(graph), costs, lowered);
      const std::vector<double> in_order = peak_activations(lowered);
      for (int x = 0; x < p; ++x) {
        CAPTURE(x);
        const auto rank = static_cast<std::size_t>(x);
        const auto most = sum(in_time[rank].peak.held).value;
        if (2 * x < p) {
          CHECK(in_order[rank] == std::min({m, p - x, cap}));
          CHECK(most == std::min({m, p - x, cap}));
        } else {
          CHECK(in_order[rank] >= std::min(m, p - x));
          CHECK(in_order[rank] <= std::max(p + 2 - cap, p - x));
          CHECK(most >= std::min(m, p - x));
          CHECK(most <= std::max(p + 2 - cap, p - x));
        }
      }
    }
  }
}

TEST_CASE("BPipe on four ranks: what a rank keeps for its partner counts while it is there") {
  // 0EVICT2 3F0 is the fullest moment of rank 3: one of its own and one of rank 0's.
  CHECK(peak_activations(bpipe(4, 6)) == std::vector<double>{3, 3, 2, 2});
}

TEST_CASE("BPipe evicts on the ranks x < p−⌈(p+2)/2⌉, to rank p−1−x, and loads each once") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      CAPTURE(p, m);
      const Schedule schedule = bpipe(p, m);
      CHECK(validate(schedule).empty());
      CHECK(validate(lower(schedule, {})).empty());
      for (int x = 0; x < p; ++x) {
        const auto sorted_evictions = [&](int rank) {
          std::vector<Action> found;
          std::ranges::copy_if(schedule.actions[static_cast<std::size_t>(rank)], std::back_inserter(found),
                               is_half_of_eviction);
          std::ranges::sort(found);
          return found;
        };
        const bool expected = m > (p + 3) / 2 && std::min(x, p - 1 - x) < p - (p + 3) / 2;
        CHECK(sorted_evictions(x).empty() != expected);
        CHECK(sorted_evictions(x) == sorted_evictions(p - 1 - x));
      }
    }
  }
}
