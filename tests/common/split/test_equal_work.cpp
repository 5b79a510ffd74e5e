// Slices of equal work against a closed form and against all ways to cut.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "common/base/error.hpp"
#include "common/split/equal_work.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

// Matmuls and causal attention: a·s + b·s·(s/2 + before).
SliceWork quadratic(double a, double b) {
  return [=](std::int64_t before, std::int64_t tokens) {
    const auto s = static_cast<double>(tokens);
    return Seconds{a * s + b * s * (s / 2 + static_cast<double>(before))};
  };
}

std::vector<double> works(const std::vector<std::int64_t>& tokens, const SliceWork& work) {
  std::vector<double> all;
  std::int64_t before = 0;
  for (const std::int64_t own : tokens) {
    all.push_back(work(before, own).value);
    before += own;
  }
  return all;
}

double longest(const std::vector<std::int64_t>& tokens, const SliceWork& work) {
  return std::ranges::max(works(tokens, work));
}

// The least longest of all ways to cut the rest of the units into so many slices.
double least_longest(const SliceProblem& problem, const SliceWork& work, std::int64_t first, int slices) {
  const std::int64_t units = problem.sequence / problem.multiple;
  const std::int64_t rest = problem.sequence % problem.multiple;
  const auto of = [&](std::int64_t count) {
    return work(first * problem.multiple, count * problem.multiple + (first + count == units ? rest : 0)).value;
  };
  if (slices == 1) return of(units - first);
  double least = 1e300;
  for (std::int64_t own = 1; first + own + slices - 1 <= units; ++own) {
    least = std::min(least, std::max(of(own), least_longest(problem, work, first + own, slices - 1)));
  }
  return least;
}

std::int64_t sum(const std::vector<std::int64_t>& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

}  // namespace

// The first x tokens have a·x + b·x²/2: slice k ends where that is k/n of all, x = (−a + √(a² + 2b·k/n·all))/b.
TEST_CASE("slices of a quadratic cost end where the closed form says") {
  for (const double b : {1e-6, 1e-4, 1.0}) {
    for (const int slices : {2, 4, 7}) {
      const std::int64_t sequence = 1 << 15;
      const auto s = static_cast<double>(sequence);
      const double all = s + b * s * s / 2;
      const std::vector<std::int64_t> tokens =
          equal_work_slices({.sequence = sequence, .slices = slices}, quadratic(1, b));
      REQUIRE(tokens.size() == static_cast<std::size_t>(slices));
      CHECK(sum(tokens) == sequence);
      std::int64_t end = 0;
      for (int slice = 0; slice < slices; ++slice) {
        end += tokens[static_cast<std::size_t>(slice)];
        const double wanted = (-1 + std::sqrt(1 + 2 * b * all * (slice + 1) / slices)) / b;
        INFO("b " << b << ", slice " << slice << " of " << slices);
        CHECK(std::abs(static_cast<double>(end) - wanted) <= slices);  // a token a slice
      }
    }
  }
}

TEST_CASE("no other way to cut has a shorter longest slice") {
  std::mt19937 random(5);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned int>(most)); };
  for (int round = 0; round < plumb::testing::cases(300); ++round) {
    const SliceProblem problem{.sequence = 12 + below(30), .slices = 1 + below(4), .multiple = 1 + below(3)};
    // Grows with the tokens by steps, as tiles make it, and with those before them.
    std::vector<double> steps(64);
    for (double& step : steps) step = below(4) == 0 ? below(20) : below(3);
    std::partial_sum(steps.begin(), steps.end(), steps.begin());
    const double slope = below(3);
    const SliceWork work = [&](std::int64_t before, std::int64_t tokens) {
      return Seconds{steps[static_cast<std::size_t>(tokens)] + 1 + slope * static_cast<double>(tokens * before) / 8};
    };
    const std::vector<std::int64_t> tokens = equal_work_slices(problem, work);
    INFO("round " << round);
    CHECK(sum(tokens) == problem.sequence);
    CHECK(std::ranges::min(tokens) >= 1);
    const double best = least_longest(problem, work, 0, problem.slices);
    CHECK(longest(tokens, work) <= best * (1 + 1e-9));
    // Equal numbers of tokens are taken where they are as good, in multiples or not.
    const bool equal = std::ranges::all_of(tokens, [&](std::int64_t own) { return own == tokens.front(); });
    for (std::size_t slice = 0; !equal && slice + 1 < tokens.size(); ++slice) {
      CHECK(tokens[slice] % problem.multiple == 0);
    }
    CHECK(tokens == equal_work_slices(problem, work));
  }
}

TEST_CASE("neighbours are as even as multiples let them be") {
  const SliceWork work = quadratic(1, 1e-3);
  const SliceProblem problem{.sequence = 4096, .slices = 4, .multiple = 64};
  const std::vector<std::int64_t> tokens = equal_work_slices(problem, work);
  const std::vector<double> found = works(tokens, work);
  for (std::size_t slice = 0; slice + 1 < tokens.size(); ++slice) {
    for (const std::int64_t by : {-64, 64}) {
      std::vector<std::int64_t> other = tokens;
      other[slice] += by;
      other[slice + 1] -= by;
      const std::vector<double> moved = works(other, work);
      CHECK(std::max(moved[slice], moved[slice + 1]) >= std::max(found[slice], found[slice + 1]));
    }
  }
}

TEST_CASE("slices are never longer than equal numbers of tokens, whatever the work") {
  std::mt19937 random(9);
  for (int round = 0; round < plumb::testing::cases(200); ++round) {
    // Not even growing: what no search can be exact for.
    std::vector<double> of(49);
    for (double& one : of) one = static_cast<double>(random() % 100);
    const SliceWork work = [&](std::int64_t before, std::int64_t tokens) {
      return Seconds{of[static_cast<std::size_t>((before * 7 + tokens) % 49)]};
    };
    const std::vector<std::int64_t> tokens = equal_work_slices({.sequence = 48, .slices = 4, .multiple = 2}, work);
    CHECK(sum(tokens) == 48);
    CHECK(longest(tokens, work) <= longest({12, 12, 12, 12}, work));
  }
}

TEST_CASE("work that only the tokens make has slices of equal tokens") {
  const std::vector<std::int64_t> equal(4, 1024);
  CHECK(equal_work_slices({.sequence = 4096, .slices = 4, .multiple = 128}, quadratic(1, 0)) == equal);
  // Where multiples do not divide a slice as well: rounded ones would be longer.
  const std::vector<std::int64_t> thirds(3, 100);
  CHECK(equal_work_slices({.sequence = 300, .slices = 3, .multiple = 64}, quadratic(1, 0)) == thirds);
  CHECK(equal_work_slices({.sequence = 300, .slices = 3, .multiple = 4, .can_be_equal = false}, quadratic(1, 0)) ==
        thirds);
  for (const std::int64_t own :
       equal_work_slices({.sequence = 320, .slices = 3, .multiple = 8, .can_be_equal = false}, quadratic(1, 0))) {
    CHECK(own % 8 == 0);
  }
}

TEST_CASE("the last slice has what is left beside multiples, and too few of them are refused") {
  const std::vector<std::int64_t> tokens =
      equal_work_slices({.sequence = 1003, .slices = 3, .multiple = 16}, quadratic(1, 1e-2));
  CHECK(sum(tokens) == 1003);
  CHECK(tokens[0] % 16 == 0);
  CHECK(tokens[1] % 16 == 0);
  CHECK_THROWS_WITH(equal_work_slices({.sequence = 100, .slices = 4, .multiple = 32}, quadratic(1, 0)),
                    ContainsSubstring("no 4 slices in multiples of 32 tokens"));
}
