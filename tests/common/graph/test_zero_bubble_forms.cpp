// The zero-bubble schedules with one chunk or a V of two against the closed forms of their papers.
#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

// The most that rank r holds when I frees all but a fraction quarters/4 of a microbatch's activations, in quarters.
int peak_quarters(const std::vector<Action>& list, int quarters) {
  int held = 0, most = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::forward) held += 4;
    if (action.kind == ActionKind::input_gradient) held -= 4 - quarters;
    if (action.kind == ActionKind::weight_gradient) held -= quarters;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

TEST_CASE("ZB-H2: span bubble (p−1)(F+I−2W), makespan bubble (p−1)·max(F, F+I−2W) for m ≥ 2p−1 and W ≤ min(F, I)") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        const Schedule schedule = generate_schedule("zb-h2", {.ranks = p, .microbatches = m});
        if (m >= 2 * p - 1) {
          for (int round = 0; round < 2; ++round) {
            const Times t = random_times_short_w(random);
            CAPTURE(t.f, t.i, t.w);
            const Measured measured = measure(schedule, t);
            CHECK(measured.makespan == m * t.all() + (p - 1) * std::max(t.f, t.f + t.i - 2 * t.w));
            CHECK(measured.span_bubble == Approx((p - 1) * (t.f + t.i - 2 * t.w)).margin(1e-6));
          }
        }
        CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), std::min(m, 2 * p - 1)));
      },
      2);
}

TEST_CASE("ZB-H2 outside its formulas' range: as the naive evaluation") {
  std::mt19937 random(21);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const int p = random_in(random, 2, largest_p);
    const int m = round % 2 == 0 ? random_in(random, 1, 2 * p - 2) : random_in(random, 1, 40);
    Times t = random_times(random);
    if (round % 2 != 0) t.w += std::max(t.f, t.i);
    t.hop = random_in(random, 0, 9);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    check_as_naive(generate_schedule("zb-h2", {.ranks = p, .microbatches = m}), t);
  }
}

TEST_CASE("W that holds a fraction ω of the activations: (p−r) + rω of ZB-H1, 2(p−r)−1 + 2rω of ZB-H2") {
  for_all_shapes(
      [](int p, int m, std::mt19937&) {
        if (m < 2 * p - 1) return;
        const Schedule h1 = generate_schedule("zb-h1", {.ranks = p, .microbatches = m});
        const Schedule h2 = generate_schedule("zb-h2", {.ranks = p, .microbatches = m});
        for (int r = 0; r < p; ++r) {
          for (int quarters = 0; quarters <= 4; ++quarters) {
            const auto rank = static_cast<std::size_t>(r);
            CHECK(peak_quarters(h1.actions[rank], quarters) == 4 * (p - r) + r * quarters);
            CHECK(peak_quarters(h2.actions[rank], quarters) == 4 * (2 * (p - r) - 1) + 2 * r * quarters);
          }
        }
      },
      3);
}

TEST_CASE("ZB-V: span bubble 2(p−1)(I−W), makespan bubble (p−1)·max(I, 2(I−W)) for m ≥ 2p−1 and W ≤ F ≤ I, p held") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        const Schedule schedule = generate_schedule("zb-v", {.ranks = p, .microbatches = m, .chunks = 2});
        if (m < 2 * p - 1) {
          for (const int peak : peak_parts(schedule)) CHECK(peak <= 2 * std::min(m, p));
          return;
        }
        for (int round = 0; round < 2; ++round) {
          Times t;
          t.w = random_in(random, 0, 30);
          t.f = random_in(random, std::max(1, t.w), 40);
          t.i = random_in(random, t.f, 50);
          CAPTURE(t.f, t.i, t.w);
          const Measured measured = measure(schedule, t);
          CHECK(measured.makespan == 2 * m * t.all() + (p - 1) * std::max(t.i, 2 * (t.i - t.w)));
          CHECK(measured.span_bubble == Approx(2 * (p - 1) * (t.i - t.w)).margin(1e-6));
        }
        CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), 2 * p));
      },
      3);
}

TEST_CASE("ZB-V outside its formulas' range: as the naive evaluation") {
  std::mt19937 random(22);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const int p = random_in(random, 1, largest_p);
    const int m = random_in(random, 1, round % 2 == 0 ? 2 * p : 30);
    Times t = random_times(random);
    t.hop = random_in(random, 0, 9);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    check_as_naive(generate_schedule("zb-v", {.ranks = p, .microbatches = m, .chunks = 2}), t);
  }
}

TEST_CASE("DualPipeV: bubble (p−1)(F&B + B − 3W) for F = I ≥ W, (2p+1)/2 held") {
  for_all_shapes(
      [](int p, int m, std::mt19937& random) {
        if (m < 2 * p) return;
        const Schedule schedule = generate_schedule("dualpipe-v", {.ranks = p, .microbatches = m, .chunks = 2});
        for (int round = 0; round < 2; ++round) {
          Times t;
          t.f = t.i = random_in(random, 1, 40);
          t.w = random_in(random, 0, t.f);
          t.hidden = random_in(random, 0, 8) / 8.0;
          CAPTURE(t.f, t.w, t.hidden);
          const double pair = t.all() - t.hidden * t.f;
          CHECK(measure(schedule, t).idlest == Approx((p - 1) * (pair + t.b() - 3 * t.w)).margin(1e-9));
        }
        CHECK(peak_parts(schedule) == std::vector<int>(static_cast<std::size_t>(p), 2 * p + 1));
      },
      2);
}

TEST_CASE("DualPipeV with its pairs taken apart: as the naive evaluation") {
  std::mt19937 random(23);
  for (int round = 0; round < plumb::testing::cases(100); ++round) {
    const int p = random_in(random, 1, 12);
    const int m = random_in(random, 2 * p, 2 * p + 20);
    Times t = random_times(random);
    t.hop = random_in(random, 0, 9);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    Schedule schedule = generate_schedule("dualpipe-v", {.ranks = p, .microbatches = m, .chunks = 2});
    schedule.overlapped.clear();
    check_as_naive(schedule, t);
  }
}
