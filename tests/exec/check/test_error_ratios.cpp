#include "exec/check/error_ratios.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

constexpr double epsilon = 0x1p-20;  // half of the digits: 2⁻¹⁰

using Numbers = std::vector<double>;

ErrorRatios ratios(const std::vector<ErrorRatio>& all) {
  ErrorRatios made;
  for (std::size_t i = 0; i < all.size(); ++i) made.add("w" + std::to_string(i), all[i]);
  return made;
}

}  // namespace

TEST_CASE("an error ratio is one error's norm over the other's, or over eight units in the last place") {
  const Numbers exact = Numbers({3, 4});  // of norm 5
  const ErrorRatio larger = error_ratio(Numbers({3, 4.3}), Numbers({3.1, 4}), exact, epsilon);
  CHECK(larger.ratio == Approx(3));
  CHECK_FALSE(larger.half_right);
  const double unit = 5 * epsilon;
  const ErrorRatio small = error_ratio(Numbers({3 + 4 * unit, 4}), exact, exact, epsilon);
  CHECK(small.ratio == Approx(0.5));
  CHECK(small.half_right);
  CHECK(error_ratio(Numbers({3, 4 + 4.9 / 1024}), exact, exact, epsilon).half_right);
  CHECK_FALSE(error_ratio(Numbers({3, 4 + 5.1 / 1024}), exact, exact, epsilon).half_right);
  CHECK(error_ratio(exact, Numbers({0, 0}), exact, epsilon).ratio == 0);
  const ErrorRatio lost = error_ratio(Numbers({std::nan(""), 4}), Numbers({3.1, 4}), exact, epsilon);
  CHECK(std::isinf(lost.ratio));
  CHECK_FALSE(lost.half_right);
}

TEST_CASE("where no rank divides a tensor, each ratio is at most 1.5") {
  CHECK(ratios({{.ratio = 1.5}, {.ratio = 0.1}}).problem(false) == "");
  CHECK_THAT(ratios({{.ratio = 1.5}, {.ratio = 1.51}}).problem(false), ContainsSubstring("w1 is 1.51"));
}

TEST_CASE("where ranks divide tensors, the mean counts, and a ratio only of what has not half of its digits") {
  CHECK(ratios({{.ratio = 2.3}, {.ratio = 0.9}, {.ratio = 0.7}}).problem(true) == "");
  CHECK(ratios({{.ratio = 2.3}, {.ratio = 0.9}, {.ratio = 0.7}}).mean() == Approx(std::cbrt(2.3 * 0.9 * 0.7)));
  // What counts 1/4 in the mean makes that no larger than the largest.
  CHECK(ratios({{.ratio = 0.02}, {.ratio = 0.1}}).mean() == 0.1);
  CHECK(ratios({{.ratio = 0.02}, {.ratio = 1}}).mean() == Approx(std::sqrt(0.25)));
  const ErrorRatio rounded{.ratio = 40};
  const ErrorRatio wrong{.ratio = 40, .half_right = false};
  const std::vector<ErrorRatio> others(20, ErrorRatio{.ratio = 1});
  const auto with = [&](const ErrorRatio& one) {
    std::vector<ErrorRatio> all = others;
    all.push_back(one);
    return ratios(all);
  };
  CHECK(with(rounded).problem(true) == "");
  CHECK(with(rounded).worst().tensor == "w20");
  CHECK_THAT(with(wrong).problem(true), ContainsSubstring("w20 is 40, expected at most 4"));
  CHECK(with({.ratio = 3.9, .half_right = false}).problem(true) == "");
  // All a little worse: no gradient alone shows it. One that is exact does not make up for the others.
  CHECK_THAT(ratios(std::vector<ErrorRatio>(9, ErrorRatio{.ratio = 1.6})).problem(true), ContainsSubstring("mean"));
  CHECK_THAT(ratios({{.ratio = 4}, {.ratio = 4}, {.ratio = 0}}).problem(true), ContainsSubstring("mean"));
  CHECK_THAT(with({.ratio = std::numeric_limits<double>::infinity(), .half_right = false}).problem(true),
             ContainsSubstring("inf"));
}
