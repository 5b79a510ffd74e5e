// The schedules with any number of chunks per rank against the closed forms of their papers. Times are of one chunk.
#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

bool allowed_group(int p, int m, int g) { return p <= g && g <= m && (m % g == 0 || m % g >= p); }

}  // namespace

TEST_CASE("Interleaved 1F1B in groups of g: bubble (p−1)(F+B)/v, (2(p−r−1)+(v−1)g+1)/v activations") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (int g = p; g <= m; g += 1 + m / 16) {
          const int v = random_in(random, 1, 4);
          if (!allowed_group(p, m, g)) continue;
          CAPTURE(g, v);
          const Schedule schedule =
              generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v, .group = g});
          const Times t = random_times(random);
          CHECK(measure(schedule, t).makespan == (m * v + p - 1) * t.all());
          const std::vector<int> peaks = peak_parts(schedule);
          for (int r = 0; r < p; ++r) {
            CHECK(peaks[static_cast<std::size_t>(r)] == std::min(2 * (p - r - 1) + (v - 1) * g + 1, m * v));
          }
        }
      },
      3);
}

// Megatron-LM, combined_1f1b.py: from the first pair on, the last rank is never idle until its cool-down.
TEST_CASE("Interleaved 1F1B overlapped: makespan ((p−1)(F+B) + (p(v−1)+1)(F+B) + (mv−p(v−1)−1)F&B)/v") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    if (m % p != 0) return;
    for (int v = 1; v <= 4; ++v) {
      const Schedule schedule =
          generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v, .overlap = true});
      Times t = random_times(random);
      t.hidden = random_in(random, 0, 8) / 8.0;
      CAPTURE(v, t.f, t.i, t.w, t.hidden);
      const double pair = t.all() - t.hidden * std::min(t.f, t.b());
      const int warm_up = std::min(p * (v - 1) + 1, m * v);
      CHECK(measure(schedule, t).makespan ==
            Approx((p - 1) * t.all() + warm_up * t.all() + (m * v - warm_up) * pair).epsilon(1e-12));
      const std::vector<int> peaks = peak_parts(schedule);
      for (int r = 0; r < p; ++r) {
        CHECK(peaks[static_cast<std::size_t>(r)] == std::min(2 * (p - r - 1) + (v - 1) * p + 2, m * v));
      }
    }
  });
}

TEST_CASE("Interleaved zero bubble: bubble (p−1)(F+I−W)/v for W ≤ min(F, I) and p | m, p held on every rank") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    if (m % p != 0) return;
    for (int v = 1; v <= 4; ++v) {
      CAPTURE(v);
      const Schedule schedule = generate_schedule("interleaved-zb", {.ranks = p, .microbatches = m, .chunks = v});
      const Times t = random_times_short_w(random);
      CAPTURE(t.f, t.i, t.w);
      CHECK(measure(schedule, t).makespan == m * v * t.all() + (p - 1) * (t.f + t.i - t.w));
      CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), p * v));
    }
  });
}

TEST_CASE("Interleaved zero bubble in groups of g: the same bubble, min(((v−1)g+p)/v, m) activations") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (int g = p; g <= m; g += 1 + m / 16) {
          const int v = random_in(random, 1, 4);
          if (!allowed_group(p, m, g)) continue;
          CAPTURE(g, v);
          const Schedule schedule =
              generate_schedule("interleaved-zb", {.ranks = p, .microbatches = m, .chunks = v, .group = g});
          const Times t = random_times_short_w(random);
          CHECK(measure(schedule, t).makespan == m * v * t.all() + (p - 1) * (t.f + t.i - t.w));
          const int held = std::min((v - 1) * g + p, m * v);
          CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), held));
        }
      },
      5);
}

TEST_CASE("Interleaved zero bubble outside its formula's range: as the naive evaluation") {
  std::mt19937 random(31);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const int p = random_in(random, 1, largest_p);
    const int m = round % 2 == 0 ? random_in(random, 1, p) : p * random_in(random, 1, 3);
    const int v = random_in(random, 1, 4);
    Times t = random_times(random);
    if (round % 2 != 0) t.w += std::max(t.f, t.i);
    t.hop = random_in(random, 0, 9);
    CAPTURE(p, m, v, t.f, t.i, t.w, t.hop);
    check_as_naive(generate_schedule("interleaved-zb", {.ranks = p, .microbatches = m, .chunks = v}), t);
  }
}

TEST_CASE("Breadth-first: bubble (p−1)(F+B)/v for m ≥ p, m activations") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (int v = 1; v <= 4; ++v) {
          CAPTURE(v);
          const Schedule schedule = generate_schedule("breadth-first", {.ranks = p, .microbatches = m, .chunks = v});
          Times t = random_times(random);
          if (m >= p) {
            CHECK(measure(schedule, t).makespan == (m * v + p - 1) * t.all());
          } else {
            t.hop = random_in(random, 0, 9);
            check_as_naive(schedule, t);
          }
          CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), m * v));
        }
      },
      7);
}

TEST_CASE(
    "Hanayo: bubble 2(p−1)F for F = B, 4(p−1)F for B = 2F and m = p: of the makespan (2p−2)/(3p+2p−2) with a wave") {
  for (int p = 1; p <= largest_p; ++p) {
    for (int waves = 1; waves <= 4; ++waves) {
      CAPTURE(p, waves);
      const Schedule once = generate_schedule("hanayo", {.ranks = p, .microbatches = p, .chunks = 2 * waves});
      CHECK(measure(once, {.f = 12, .i = 5, .w = 7}).bubble == Approx(2 * (p - 1) * 12).margin(1e-6));
      const Measured measured = measure(once, {.f = 12, .i = 14, .w = 10});
      CHECK(measured.bubble == Approx(4 * (p - 1) * 12).margin(1e-6));
      if (waves == 1) CHECK(measured.bubble / measured.makespan == Approx((2.0 * p - 2) / (3 * p + 2 * p - 2)));
      const Schedule again = generate_schedule("hanayo", {.ranks = p, .microbatches = 3 * p, .chunks = 2 * waves});
      CHECK(measure(again, {.f = 12, .i = 5, .w = 7}).bubble == Approx(2 * (p - 1) * 12).margin(1e-6));
    }
  }
}

TEST_CASE("Hanayo: bubble 2(p−1)(min(F, B) + n·|F−B|) for m = np in one chunk's times, p − (p−1−r)/v activations") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (const int v : {2, 4, 6}) {
          CAPTURE(v);
          const Schedule schedule = generate_schedule("hanayo", {.ranks = p, .microbatches = m, .chunks = v});
          Times t = random_times(random);
          if (m % p == 0) {
            const int wait = std::min(t.f, t.b()) + m / p * std::abs(t.f - t.b());
            CHECK(measure(schedule, t).makespan == m * v * t.all() + 2 * (p - 1) * wait);
          } else if (m % 4 == 0) {
            t.hop = random_in(random, 0, 9);
            check_as_naive(schedule, t);
          }
          const std::vector<int> peaks = peak_parts(schedule);
          for (int r = 0; r < p; ++r) {
            const int peak = peaks[static_cast<std::size_t>(r)];
            CHECK((m >= p ? peak == p * v - (p - 1 - r) : peak <= m * v));
          }
        }
      },
      2);
}
