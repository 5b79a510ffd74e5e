// V-Half and V-Min against the bubbles and the memory of arXiv 2405.15362 and, elsewhere, the naive evaluation.
#include <algorithm>
#include <map>

#include "tests/common/graph/closed_forms.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

Schedule v_schedule(const std::string& name, int p, int m) {
  return generate_schedule(name, {.ranks = p, .microbatches = m, .chunks = 2});
}

double unit_bubble(const std::string& name, int p, int m) {
  return measure(v_schedule(name, p, m), {.f = 1, .i = 1, .w = 1}).bubble;
}

double fullest(const Schedule& schedule) { return std::ranges::max(peak_activations(schedule)); }

// Microbatches from which on the bubble is that of many: the warm-up and the cool-down fit.
std::vector<int> enough(int p) { return {std::max(p, 3), p + 2, 2 * p + 1, 4 * p + 3}; }

}  // namespace

TEST_CASE("V-Half: the bubbles of the authors' passes, p 2 to 8, in unit times of a chunk") {
  const std::map<int, int> bubbles{{2, 1}, {3, 5}, {4, 5}, {5, 11}, {6, 11}, {7, 17}, {8, 17}};
  for (const auto& [p, bubble] : bubbles) {
    for (const int m : enough(p)) {
      CAPTURE(p, m);
      CHECK(unit_bubble("v-half", p, m) == bubble);
    }
  }
}

TEST_CASE("V-Min: the bubbles of the authors' passes, p 2 to 8, in unit times of a chunk") {
  const std::map<int, int> bubbles{{2, 3}, {3, 5}, {4, 11}, {5, 15}, {6, 17}, {7, 23}, {8, 27}};
  for (const auto& [p, bubble] : bubbles) {
    for (const int m : enough(p)) {
      CAPTURE(p, m);
      CHECK(unit_bubble("v-min", p, m) == bubble);
    }
  }
}

TEST_CASE("V-Half and V-Min on more ranks: the bubbles go on as 6⌊(p−1)/2⌋−1, and 4p−7 or 4p−5") {
  for (int p = 9; p <= 24; ++p) {
    for (const int m : enough(p)) {
      CAPTURE(p, m);
      CHECK(unit_bubble("v-half", p, m) == 6 * ((p - 1) / 2) - 1);
      CHECK(unit_bubble("v-min", p, m) == (p % 3 == 0 ? 4 * p - 7 : 4 * p - 5));
    }
  }
}

TEST_CASE("V-Half holds ⌊(p+2)/2⌋ microbatches on its fullest rank, V-Min ⌊(p+4)/3⌋") {
  for (int p = 1; p <= largest_p; ++p) {
    for (int m = 1; m <= 40; ++m) {
      CAPTURE(p, m);
      const int half = (p + 2) / 2;
      const int min = (p + 4) / 3;
      const double of_half = fullest(v_schedule("v-half", p, m));
      const double of_min = fullest(v_schedule("v-min", p, m));
      CHECK(of_half <= std::min(half, m));
      CHECK(of_min <= std::min(min, m));
      if (m < p) continue;
      CHECK(of_half == half);
      CHECK(of_min == min);
    }
  }
}

TEST_CASE("V-Half has no bubble in its steady phase exactly if W+2I ≥ 2F and W+2F ≥ 2I") {
  for (int p = 2; p <= 8; ++p) {
    const int m = 6 * p + 12;
    const Schedule shorter = v_schedule("v-half", p, m);
    const Schedule longer = v_schedule("v-half", p, m + p);
    std::mt19937 random(static_cast<unsigned>(p));
    for (int round = 0; round < plumb::testing::cases(100); ++round) {
      const Times t = random_times(random);
      CAPTURE(p, t.f, t.i, t.w);
      const bool without_bubble = t.w + 2 * t.i >= 2 * t.f && t.w + 2 * t.f >= 2 * t.i;
      CHECK((measure(longer, t).makespan - measure(shorter, t).makespan == p * 2 * t.all()) == without_bubble);
    }
  }
}

TEST_CASE("V-Half and V-Min with any times and few microbatches: as the naive evaluation") {
  std::mt19937 random(11);
  for (int round = 0; round < plumb::testing::cases(300); ++round) {
    const int p = random_in(random, 1, 12);
    const int m = random_in(random, 1, 20);
    Times t = random_times(random);
    t.hop = random_in(random, 0, 9);
    CAPTURE(p, m, t.f, t.i, t.w, t.hop);
    for (const char* name : {"v-half", "v-min"}) {
      const Schedule schedule = v_schedule(name, p, m);
      check_as_naive(schedule, t);
    }
  }
}
