// Makespan and peak activations against the closed forms of the papers; times are whole numbers, so equality is exact.
#include <algorithm>
#include <numeric>
#include <random>

#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"

using namespace plumb;

namespace {

constexpr int largest_p = 16;
constexpr int largest_m = 64;

// Of one rank's share, in whole units (multiples of the chunks where there are several).
struct Times {
  int f;
  int i;
  int w;
  int hop = 0;
  int b() const { return i + w; }
};

Times random_times(std::mt19937& random, int scale = 1) {
  std::uniform_int_distribution<int> any(0, 40);
  std::uniform_int_distribution<int> positive(1, 40);
  return {.f = positive(random) * scale, .i = positive(random) * scale, .w = any(random) * scale};
}

double makespan(const Schedule& schedule, const PipelineCosts& costs) {
  return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
}

double makespan(const Schedule& schedule, const Times& times) {
  const auto seconds = [](int value) { return Seconds{static_cast<double>(value)}; };
  return makespan(schedule, even_costs(stages(schedule), {.forward = seconds(times.f),
                                                          .input_gradient = seconds(times.i),
                                                          .weight_gradient = seconds(times.w),
                                                          .hop = seconds(times.hop),
                                                          .chunks = schedule.chunks}));
}

int naive_makespan(const Schedule& schedule, const Times& times) {
  const int v = schedule.chunks;
  return naive_run(schedule, even_ticks(stages(schedule), times.f / v, times.i / v, times.w / v, times.hop)).makespan;
}

// Calls check(schedule shape) for all p and m, with a fixed seed per shape.
template <class Check>
void for_all_shapes(const Check& check) {
  for (int p = 1; p <= largest_p; ++p) {
    for (int m = 1; m <= largest_m; ++m) {
      std::mt19937 random(static_cast<unsigned>(1000 * p + m));
      check(p, m, random);
    }
  }
}

}  // namespace

TEST_CASE("GPipe: makespan (m+p−1)(F+B), m activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    CAPTURE(p, m);
    const Schedule schedule = generate_schedule("gpipe", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      const Times t = random_times(random);
      CHECK(makespan(schedule, t) == (m + p - 1) * (t.f + t.b()));
    }
    CHECK(peak_activations(schedule) == std::vector<double>(static_cast<std::size_t>(p), m));
  });
}

TEST_CASE("GPipe with uneven stages: ΣF + (m−1)·max F + ΣB + (m−1)·max B") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    CAPTURE(p, m);
    PipelineCosts costs = even_costs(p, {});
    std::vector<int> f, b;
    for (ComputeCost& stage : costs.stages) {
      const Times t = random_times(random);
      f.push_back(t.f);
      b.push_back(t.b());
      stage.forward.value = t.f;
      stage.input_gradient.value = t.i;
      stage.weight_gradient.value = t.w;
    }
    const int sum = std::accumulate(f.begin(), f.end(), 0) + std::accumulate(b.begin(), b.end(), 0);
    const int slowest = *std::ranges::max_element(f) + *std::ranges::max_element(b);
    CHECK(makespan(generate_schedule("gpipe", {.ranks = p, .microbatches = m}), costs) == sum + (m - 1) * slowest);
  });
}

TEST_CASE("1F1B: makespan (m+p−1)(F+B), min(m, p−r) activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    CAPTURE(p, m);
    const Schedule schedule = generate_schedule("1f1b", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      const Times t = random_times(random);
      CHECK(makespan(schedule, t) == (m + p - 1) * (t.f + t.b()));
    }
    const std::vector<double> peaks = peak_activations(schedule);
    for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == std::min(m, p - r));
  });
}

TEST_CASE("1F1B with hops: (m+p−1)(F+B) + 2c((p−1)m/p + p−2) for p | m and c ≤ min(F, B)/2") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    CAPTURE(p, m);
    const Schedule schedule = generate_schedule("1f1b", {.ranks = p, .microbatches = m});
    Times t = random_times(random);
    if (p >= 2 && m % p == 0) {
      for (t.hop = 0; 2 * t.hop <= std::min(t.f, t.b()); t.hop += 3) {
        CHECK(makespan(schedule, t) == (m + p - 1) * (t.f + t.b()) + 2 * t.hop * ((p - 1) * m / p + p - 2));
      }
    }
    if (m % 5 == 0) {  // a sample of the rest, any latency: only the naive evaluation tells
      t.hop = std::uniform_int_distribution<int>(0, 60)(random);
      CHECK(makespan(schedule, t) == naive_makespan(schedule, t));
    }
  });
}

TEST_CASE("Interleaved 1F1B: bubble (p−1)(F+B)/v, (2(p−r−1)+(v−1)p+1)/v activations, for p | m") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    if (m % p != 0) return;
    for (int v = 1; v <= 4; ++v) {
      CAPTURE(p, m, v);
      const Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v});
      const Times t = random_times(random, v);
      CHECK(makespan(schedule, t) == m * (t.f + t.b()) + (p - 1) * (t.f + t.b()) / v);
      const std::vector<double> peaks = peak_activations(schedule);
      for (int r = 0; r < p; ++r) {
        const int chunks = std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v);
        CHECK(peaks[static_cast<std::size_t>(r)] * v == Approx(chunks).epsilon(1e-12));
      }
    }
  });
}

TEST_CASE("Interleaved 1F1B with p not dividing m: as the naive evaluation, and 9/2 at p 4, m 6, v 2, F+B 3") {
  CHECK(makespan(generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = 6, .chunks = 2}), {2, 2, 2}) ==
        2 * (6 * 3 + 4.5));
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const int groups = std::max(1, m / p);
    if (m % p == 0 || m % groups != 0 || (p * m) % 3 != 0) return;
    for (const int v : {2, 3}) {
      CAPTURE(p, m, v);
      const Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v});
      const Times t = random_times(random, v);
      CHECK(makespan(schedule, t) == naive_makespan(schedule, t));
    }
  });
}

TEST_CASE("ZB-H1: bubble (p−1)(F+I−W) for m ≥ p and W ≤ min(F, I), min(m, p) activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    CAPTURE(p, m);
    const Schedule schedule = generate_schedule("zb-h1", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      Times t = random_times(random);
      if (m >= p) {
        t.w = std::min({t.w, t.f, t.i});
        CHECK(makespan(schedule, t) == m * (t.f + t.b()) + (p - 1) * (t.f + t.i - t.w));
      } else if (round == 0) {
        CHECK(makespan(schedule, t) == naive_makespan(schedule, t));
      }
    }
    CHECK(peak_activations(schedule) == std::vector<double>(static_cast<std::size_t>(p), std::min(m, p)));
  });
}

TEST_CASE("ZB-H1 outside its formula's range: as the naive evaluation") {
  std::mt19937 random(5);
  for (int round = 0; round < 150; ++round) {
    const int p = std::uniform_int_distribution<int>(2, largest_p)(random);
    const int m = std::uniform_int_distribution<int>(1, 24)(random);
    Times t = random_times(random);
    t.w = std::max(t.f, t.i) + t.w;
    t.hop = std::uniform_int_distribution<int>(0, 9)(random);
    const Schedule schedule = generate_schedule("zb-h1", {.ranks = p, .microbatches = m});
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    CHECK(makespan(schedule, t) == naive_makespan(schedule, t));
  }
}
