// BPipe: 1F1B's time in less memory.
#include <algorithm>

#include "common/schedule/validate.hpp"
#include "tests/common/graph/closed_forms.hpp"

using namespace plumb;

namespace {

Schedule bpipe(int p, int m) { return generate_schedule("bpipe", {.ranks = p, .microbatches = m}); }
bool evicts(const Action& action) { return is_eviction(action.kind); }

std::vector<int> some_microbatches(int p) { return {1, 2, p - 1 + (p == 1), p, p + 1, 2 * p + 3, 5 * p, 64}; }

}  // namespace

TEST_CASE("BPipe without its evictions is 1F1B") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      CAPTURE(p, m);
      Schedule schedule = bpipe(p, m);
      for (auto& list : schedule.actions) std::erase_if(list, evicts);
      CHECK(schedule.actions == generate_schedule("1f1b", {.ranks = p, .microbatches = m}).actions);
    }
  }
}

TEST_CASE("BPipe: makespan (m+p−1)(F+B) for F ≤ B ≤ 3F") {
  for (int p = 1; p <= largest_p; ++p) {
    for (const int m : some_microbatches(p)) {
      const Schedule schedule = bpipe(p, m);
      std::mt19937 random(static_cast<unsigned>(100 * p + m));
      for (int round = 0; round < 5; ++round) {
        Times t = random_times(random);
        const int b = random_in(random, t.f, 3 * t.f);
        t.w = b / 3;
        t.i = b - t.w;
        CAPTURE(p, m, t.f, b);
        CHECK(measure(schedule, t).makespan == (m + p - 1) * (t.f + b));
      }
    }
  }
}

// Kim et al., ICML 2023, section 3: ⌈(p+2)/2⌉ bounds every rank; the evicting ones reach it.
TEST_CASE("BPipe holds at most ⌈(p+2)/2⌉ microbatches on any rank, its partner's counted") {
  for (int p = 1; p <= 2 * largest_p; ++p) {
    const int cap = (p + 3) / 2;
    for (const int m : some_microbatches(p)) {
      CAPTURE(p, m);
      const std::vector<double> peaks = peak_activations(bpipe(p, m));
      for (int x = 0; x < p; ++x) {
        CAPTURE(x);
        const double peak = peaks[static_cast<std::size_t>(x)];
        if (2 * x < p) {
          CHECK(peak == std::min({m, p - x, cap}));
        } else {
          CHECK(peak <= std::max(p + 2 - cap, p - x));
          CHECK(peak >= std::min(m, p - x));
        }
      }
    }
  }
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
          std::ranges::copy_if(schedule.actions[static_cast<std::size_t>(rank)], std::back_inserter(found), evicts);
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
