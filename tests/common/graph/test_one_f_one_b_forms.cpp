// The relatives of 1F1B with one stage per rank against the closed forms of their papers.
#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

using namespace plumb;

TEST_CASE("Eager 1F1B: makespan (m+p−1)(F+B) + 2(p−1)c for c ≤ (F+B)/2, min(m, 2(p−r)−1) activations") {
  for_all_shapes([](int p, int m, std::mt19937& random) {
    const Schedule schedule = generate_schedule("eager-1f1b", {.ranks = p, .microbatches = m});
    Times t = random_times(random);
    t.hop = random_in(random, 0, t.all() / 2);
    CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all() + 2 * (p - 1) * t.hop);
    const std::vector<int> peaks = peak_parts(schedule);
    for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == std::min(m, 2 * (p - r) - 1));
    if (m % 8 == 0) {
      t.hop = random_in(random, t.all() / 2 + 1, 2 * t.all());
      check_as_naive(schedule, t);
    }
  });
}

TEST_CASE("Eager 1F1B hides a latency that 1F1B does not (Alpa)") {
  const Times t{.f = 2, .i = 2, .w = 2, .hop = 1};
  CHECK(measure(generate_schedule("eager-1f1b", {.ranks = 4, .microbatches = 16}), t).makespan == 19 * 6 + 6);
  CHECK(measure(generate_schedule("1f1b", {.ranks = 4, .microbatches = 16}), t).makespan == 19 * 6 + 28);
}

TEST_CASE("Seq1F1B: bubble (p−1)(F+B)/n, min((p−r−1+n)/n, m) activations, one slice is 1F1B") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (int n = 1; n <= 5; ++n) {
          CAPTURE(n);
          const Schedule schedule = generate_schedule("seq-1f1b", {.ranks = p, .microbatches = m, .slices = n});
          const Times t = random_times(random);  // of a slice: 1/n of a microbatch
          const Measured measured = measure(schedule, t);
          CHECK(measured.makespan == (m * n + p - 1) * t.all());
          const std::vector<int> peaks = peak_parts(schedule);
          for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == std::min(p - r - 1 + n, m * n));
          if (n == 1) {
            CHECK(schedule.actions == generate_schedule("1f1b", {.ranks = p, .microbatches = m}).actions);
          }
        }
      },
      5);
}

TEST_CASE("Seq1F1B with a latency: as the naive evaluation") {
  std::mt19937 random(11);
  for (int round = 0; round < plumb::testing::cases(100); ++round) {
    const ScheduleShape shape{.ranks = random_in(random, 1, largest_p),
                              .microbatches = random_in(random, 1, 20),
                              .slices = random_in(random, 1, 5)};
    Times t = random_times(random);
    t.hop = random_in(random, 1, 60);
    CAPTURE(shape.ranks, shape.microbatches, shape.slices);
    check_as_naive(generate_schedule("seq-1f1b", shape), t);
  }
}

TEST_CASE("PipeDream and 2BW wait only at the start and the end: makespan (m+p−1)(F+B), min(m, p−r) activations") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        for (const char* name : {"pipedream", "pipedream-2bw"}) {
          if (m % p != 0 && std::string(name) == "pipedream-2bw") continue;
          CAPTURE(name);
          const Schedule schedule = generate_schedule(name, {.ranks = p, .microbatches = m});
          const Times t = random_times(random);
          CHECK(measure(schedule, t).makespan == (m + p - 1) * t.all());
          const std::vector<int> peaks = peak_parts(schedule);
          for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == std::min(m, p - r));
        }
      },
      3);
}
