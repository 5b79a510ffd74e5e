// Makespan and peak activations against the closed forms of the papers; times are whole numbers, so equality is exact.
#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

#include <numeric>

using namespace plumb;

TEST_CASE("GPipe: makespan (m+p−1)(F+B), m activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const Schedule schedule = generate_schedule("gpipe", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      const Times t = random_times(random);
      CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all());
    }
    CHECK(peak_activations(schedule) == std::vector<double>(static_cast<std::size_t>(p), m));
  });
}

TEST_CASE("GPipe with uneven stages: ΣF + (m−1)·max F + ΣB + (m−1)·max B") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
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
    const Schedule schedule = generate_schedule("gpipe", {.ranks = p, .microbatches = m});
    CHECK(evaluate(build_graph(lower(schedule, {}), costs)).makespan.value == sum + (m - 1) * slowest);
  });
}

TEST_CASE("1F1B: makespan (m+p−1)(F+B), min(m, p−r) activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const Schedule schedule = generate_schedule("1f1b", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      const Times t = random_times(random);
      CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all());
    }
    const std::vector<double> peaks = peak_activations(schedule);
    for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == std::min(m, p - r));
  });
}

TEST_CASE("1F1B with hops: (m+p−1)(F+B) + 2c((p−1)m/p + p−2) for p | m and c ≤ min(F, B)/2") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const Schedule schedule = generate_schedule("1f1b", {.ranks = p, .microbatches = m});
    Times t = random_times(random);
    if (p >= 2 && m % p == 0) {
      for (t.hop = 0; 2 * t.hop <= std::min(t.f, t.b()); t.hop += 3) {
        CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all() + 2 * t.hop * ((p - 1) * m / p + p - 2));
      }
    }
    if (m % 5 == 0) {  // a sample of the rest, any latency: only the naive evaluation tells
      t.hop = std::uniform_int_distribution<int>(0, 60)(random);
      CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan);
    }
  });
}

TEST_CASE("Interleaved 1F1B: bubble (p−1)(F+B)/v, (2(p−r−1)+(v−1)p+1)/v activations, for p | m") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    if (m % p != 0) return;
    for (int v = 1; v <= 4; ++v) {
      CAPTURE(v);
      const Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v});
      const Times t = random_times(random);
      CHECK(measure(schedule, t).makespan == (m * v + p - 1) * t.all());
      const std::vector<double> peaks = peak_activations(schedule);
      for (int r = 0; r < p; ++r) {
        const int chunks = std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v);
        CHECK(peaks[static_cast<std::size_t>(r)] * v == Approx(chunks).epsilon(1e-12));
      }
    }
  });
}

TEST_CASE("Interleaved 1F1B with p not dividing m: as the naive evaluation, and 9/2 at p 4, m 6, v 2, F+B 3") {
  CHECK(measure(generate_schedule("interleaved-1f1b", {.ranks = 4, .microbatches = 6, .chunks = 2}), {1, 1, 1})
            .makespan == 2 * (6 * 3 + 4.5));
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const int groups = std::max(1, m / p);
    if (m % p == 0 || m % groups != 0 || (p * m) % 3 != 0) return;
    for (const int v : {2, 3}) {
      CAPTURE(v);
      const Schedule schedule = generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = m, .chunks = v});
      const Times t = random_times(random);
      CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan);
    }
  });
}

TEST_CASE("ZB-H1: bubble (p−1)(F+I−W) for m ≥ p and W ≤ min(F, I), min(m, p) activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const Schedule schedule = generate_schedule("zb-h1", {.ranks = p, .microbatches = m});
    for (int round = 0; round < 3; ++round) {
      Times t = random_times(random);
      if (m >= p) {
        t.w = std::min({t.w, t.f, t.i});
        CHECK(measure(schedule, t).makespan == m * t.all() + (p - 1) * (t.f + t.i - t.w));
      } else if (round == 0) {
        CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan);
      }
    }
    CHECK(peak_activations(schedule) == std::vector<double>(static_cast<std::size_t>(p), std::min(m, p)));
  });
}

TEST_CASE("ZB-H1 outside its formula's range: as the naive evaluation") {
  std::mt19937 random(5);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const int p = std::uniform_int_distribution<int>(2, largest_p)(random);
    const int m = std::uniform_int_distribution<int>(1, 24)(random);
    Times t = random_times(random);
    t.w = std::max(t.f, t.i) + t.w;
    t.hop = std::uniform_int_distribution<int>(0, 9)(random);
    const Schedule schedule = generate_schedule("zb-h1", {.ranks = p, .microbatches = m});
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    CHECK(measure(schedule, t).makespan == naive(schedule, t).makespan);
  }
}
