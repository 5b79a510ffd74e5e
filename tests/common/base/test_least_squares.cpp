// Least squares against closed forms.
#include "common/base/least_squares.hpp"

#include <cmath>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

// Of a line a + b·x through points with a standard deviation of 1.
const std::vector<double> places = {0, 1, 2, 4, 7};
const std::vector<double> heights = {1.1, 2.9, 5.2, 8.7, 15.3};

std::vector<double> line(const std::vector<double>& unknowns) {
  std::vector<double> residuals;
  for (std::size_t i = 0; i < places.size(); ++i) {
    residuals.push_back(unknowns[0] + unknowns[1] * places[i] - heights[i]);
  }
  return residuals;
}

}  // namespace

// Normal equations by hand: n = 5, Σx = 14, Σx² = 70, Σy = 33.2, Σxy = 155.2.
TEST_CASE("a straight line is found in one step, with the covariance of its normal equations") {
  const double determinant = 5 * 70 - 14 * 14;
  const double slope = (5 * 155.2 - 14 * 33.2) / determinant;
  const double height = (33.2 - slope * 14) / 5;
  const Minimum found = gauss_newton(line, {0, 0}, {.longest = 100});
  CHECK(found.at[0] == Approx(height));
  CHECK(found.at[1] == Approx(slope));
  CHECK(found.sum == Approx(sum_of_squares(line({height, slope}))));

  const auto spread = covariance(derivatives(line, found.at, 0.1));
  REQUIRE(spread);
  CHECK((*spread)[0][0] == Approx(70 / determinant));
  CHECK((*spread)[1][1] == Approx(5 / determinant));
  CHECK((*spread)[0][1] == Approx(-14 / determinant));
  CHECK((*spread)[1][0] == Approx(-14 / determinant));
}

TEST_CASE("a decay is found from afar, where full steps overshoot") {
  const Residuals decay = [](const std::vector<double>& at) {
    std::vector<double> residuals;
    for (const double t : {0.0, 0.5, 1.0, 2.0, 3.0}) {
      residuals.push_back(std::exp(at[0] - std::exp(at[1]) * t) - 5 * std::exp(-0.8 * t));
    }
    return residuals;
  };
  const Minimum found = gauss_newton(decay, {0, 1.2}, {.steps = 50, .difference = 1e-4, .settled = 1e-9});
  CHECK(found.at[0] == Approx(std::log(5)).epsilon(1e-4));
  CHECK(found.at[1] == Approx(std::log(0.8)).epsilon(1e-3));
}

TEST_CASE("a search by steps gets past kinks, and never ends above its start") {
  const Residuals kinked = [](const std::vector<double>& at) {
    return std::vector<double>{std::sqrt(std::abs(at[0] - 0.3)), std::sqrt(std::abs(at[1] + 0.2))};
  };
  const Minimum found = pattern_search(kinked, {.at = {0, 0}, .sum = sum_of_squares(kinked({0, 0}))}, 0.1, 0.001);
  CHECK(std::abs(found.at[0] - 0.3) < 0.002);
  CHECK(std::abs(found.at[1] + 0.2) < 0.002);
  CHECK(found.sum < 0.004);
}

TEST_CASE("a search by steps follows a narrow valley without creeping") {
  int looks = 0;
  const Residuals valley = [&](const std::vector<double>& at) {
    ++looks;
    return std::vector<double>{5 * (at[0] - 2 * at[1]), at[0] + at[1] - 3};
  };
  const Minimum found = pattern_search(valley, {.at = {0, 0}, .sum = sum_of_squares(valley({0, 0}))}, 0.01, 0.0001);
  CHECK(found.sum < 0.01);
  CHECK(looks < 2000);
}

TEST_CASE("unknowns that residuals do not tell apart have no covariance") {
  const auto sum_only = [](const std::vector<double>& at) {
    return std::vector<double>{at[0] + at[1], 2 * (at[0] + at[1])};
  };
  CHECK_FALSE(covariance(derivatives(sum_only, {0, 0}, 0.1)));
  const auto one_only = [](const std::vector<double>& at) { return std::vector<double>{at[0], 1}; };
  CHECK_FALSE(covariance(derivatives(one_only, {0, 0}, 0.1)));
  const Minimum found = gauss_newton(one_only, {0.2, 7});
  CHECK(std::abs(found.at[0]) < 1e-6);
  CHECK(found.at[1] == 7);
}
