// Chimera and DualPipe, two pipelines in opposite directions, against their papers' closed forms.
#include <algorithm>
#include <cstdlib>

#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

double bubble(const Schedule& schedule, const Times& t) { return measure(schedule, t).bubble; }

// F and B alone: where B is not split, only I + W counts.
Times full_backward(int f, int b) { return {.f = f, .i = b - b / 3, .w = b / 3}; }

Schedule chimera(int p, int m) { return generate_schedule("chimera", {.ranks = p, .microbatches = m}); }
Schedule dualpipe(int p, int m) { return generate_schedule("dualpipe", {.ranks = p, .microbatches = m}); }

}  // namespace

// Section 3.3 and table 2 of arXiv 2107.06925, with N = m and D = p.
TEST_CASE("Chimera with m = p: bubble ratio (p−2)/(2m+p−2) if B = F, (p−2)/(1.5m+p−2) if B = 2F") {
  for (int p = 2; p <= largest_p; p += 2) {
    const Schedule schedule = chimera(p, p);
    for (int f = 1; f <= 40; ++f) {
      CAPTURE(p, f);
      // Without fractions: bubble / makespan = (p−2) / (2m+p−2), 2m of which are busy slots of F.
      CHECK(bubble(schedule, full_backward(f, f)) == (p - 2) * f);
      // Here a slot is 2F: 1.5m of them are busy.
      CHECK(bubble(schedule, full_backward(f, 2 * f)) == (p - 2) * 2 * f);
    }
  }
}

TEST_CASE("Chimera with m = 2p, concatenated: bubble (p−2)F if B = F, 3(p−2)F if B = 2F") {
  for (int p = 2; p <= largest_p; p += 2) {
    const Schedule schedule = chimera(p, 2 * p);
    for (int f = 1; f <= 40; ++f) {
      CAPTURE(p, f);
      CHECK(bubble(schedule, full_backward(f, f)) == (p - 2) * f);
      CHECK(bubble(schedule, full_backward(f, 2 * f)) == 3 * (p - 2) * f);
    }
  }
}

TEST_CASE("Chimera with any times and units: bubble (p−2)(max(F, B) + (m/p−1)·|F−B|), also naively") {
  for (int p = 2; p <= largest_p; p += 2) {
    for (int units = 1; units <= 4; ++units) {
      const Schedule schedule = chimera(p, units * p);
      std::mt19937 random(static_cast<unsigned>(100 * p + units));
      for (int round = 0; round < 25; ++round) {
        const Times t = random_times(random);
        CAPTURE(p, units, t.f, t.i, t.w);
        CHECK(bubble(schedule, t) == (p - 2) * (std::max(t.f, t.b()) + (units - 1) * std::abs(t.f - t.b())));
        if (round == 0 && p <= 8) check_as_naive(schedule, t);
      }
    }
  }
}

// After its last B each rank sums the gradients of its two stages with the rank that holds their other replicas.
TEST_CASE("Chimera with hops: the naive evaluation and two hops for the sums") {
  std::mt19937 random(3);
  for (int round = 0; round < plumb::testing::cases(100); ++round) {
    const int p = 2 * random_in(random, 1, 5);
    const int m = p * random_in(random, 1, 3);
    Times t = random_times(random);
    t.hop = random_in(random, 1, 60);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    const Schedule schedule = chimera(p, m);
    CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan + 2 * t.hop);
  }
}

TEST_CASE("Chimera holds p/2+1 microbatches on its first and last rank, p on those in the middle") {
  for (int p = 2; p <= largest_p; p += 2) {
    for (int units = 1; units <= 3; ++units) {
      CAPTURE(p, units);
      const std::vector<double> peaks = peak_activations(chimera(p, units * p));
      for (int r = 0; r < p; ++r) {
        CHECK(peaks[static_cast<std::size_t>(r)] == p / 2 + 1 + std::min(r, p - 1 - r));
      }
    }
  }
}

// DeepSeek's README. It holds on the two ranks in the middle: where F&B < F+B the outer ones have fewer pairs, and with
// them more to do.
TEST_CASE("DualPipe: bubble (p/2−1)(F&B + B − 3W) for F = I ≥ W") {
  for (int p = 2; p <= largest_p; p += 2) {
    for (const int m : {2 * p, 2 * p + 2, 3 * p + p % 4, 4 * p}) {
      const Schedule schedule = dualpipe(p, m);
      std::mt19937 random(static_cast<unsigned>(100 * p + m));
      for (int round = 0; round < 10; ++round) {
        Times t = random_times(random);
        t.i = t.f;
        t.w = std::min(t.w, t.f);
        t.hidden = random_in(random, 0, 8) / 8.0;
        CAPTURE(p, m, t.f, t.w, t.hidden);
        const double pair = t.all() - t.hidden * t.f;
        CHECK(measure(schedule, t).idlest == Approx((p / 2 - 1) * (pair + t.b() - 3 * t.w)).margin(1e-9));
      }
    }
  }
}

TEST_CASE("DualPipe with any times, its pairs apart: as the naive evaluation") {
  std::mt19937 random(4);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const int p = 2 * random_in(random, 1, 5);
    const int m = 2 * p + 2 * random_in(random, 0, p);
    Times t = random_times(random);
    t.hop = random_in(random, 0, 30);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    Schedule schedule = dualpipe(p, m);
    schedule.overlapped.clear();
    CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan + 2 * t.hop);
  }
}

TEST_CASE("DualPipe holds p+1 microbatches on every rank") {
  for (int p = 2; p <= largest_p; p += 2) {
    for (const int m : {2 * p, 2 * p + 2, 4 * p}) {
      CAPTURE(p, m);
      CHECK(peak_activations(dualpipe(p, m)) == std::vector<double>(static_cast<std::size_t>(p), p + 1));
    }
  }
}
