// Draws against the moments that they should have, and against themselves.
#include "common/base/random.hpp"

#include <cmath>

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("a draw depends on seed, name and count alone") {
  CHECK(normal_draw(1, "a", 7) == normal_draw(1, "a", 7));
  CHECK(normal_draw(1, "a", 7) != normal_draw(2, "a", 7));
  CHECK(normal_draw(1, "a", 7) != normal_draw(1, "b", 7));
  CHECK(normal_draw(1, "a", 7) != normal_draw(1, "a", 8));
}

TEST_CASE("uniform draws fill their interval") {
  double sum = 0;
  double squares = 0;
  constexpr int count = 100'000;
  for (int i = 0; i < count; ++i) {
    const double draw = unit_draw(3, "name", static_cast<std::uint64_t>(i));
    REQUIRE((draw > 0 && draw < 1));
    sum += draw;
    squares += draw * draw;
  }
  CHECK(sum / count == Approx(0.5).margin(0.005));
  CHECK(squares / count == Approx(1.0 / 3).margin(0.005));
}

TEST_CASE("lognormal factors have mean 1 and the given standard deviation, and independent names do not correlate") {
  for (const double spread : {0.05, 0.3}) {
    double sum = 0;
    double squares = 0;
    double products = 0;
    constexpr int count = 100'000;
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const double factor = lognormal_factor(normal_draw(1, "x", at), spread) - 1;
      sum += factor;
      squares += factor * factor;
      products += factor * (lognormal_factor(normal_draw(1, "y", at), spread) - 1);
    }
    CHECK(sum / count == Approx(0).margin(spread / 50));
    CHECK(std::sqrt(squares / count) == Approx(spread).epsilon(0.02));
    CHECK(products / count == Approx(0).margin(spread * spread / 50));
  }
  CHECK(lognormal_factor(1.5, 0) == 1);
  // The normal distribution's own: 15.87% lie above one standard deviation.
  int above = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) above += normal_draw(5, "z", i) > 1 ? 1 : 0;
  CHECK(above == Approx(15'866).margin(500));
}
