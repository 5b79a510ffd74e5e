#include "common/base/text.hpp"

#include <limits>

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("times and sizes come in the unit that fits") {
  CHECK(to_text(Seconds{0}) == "0 s");
  CHECK(to_text(Seconds{1.5}) == "1.500 s");
  CHECK(to_text(Seconds{0.0123456}) == "12.35 ms");
  CHECK(to_text(Seconds{-0.25}) == "-250.0 ms");
  CHECK(to_text(Seconds{3e-6}) == "3.000 µs");
  CHECK(to_text(Seconds{std::numeric_limits<double>::infinity()}) == "inf s");
  CHECK(to_text(Bytes{512}) == "512 B");
  CHECK(to_text(Bytes{1536}) == "1.500 KiB");
  CHECK(to_text(Bytes{80LL << 30}) == "80.00 GiB");
  CHECK(to_text(Flops{312e12}) == "312.0 TFLOP");
  CHECK(count_text(128) == "128");
  CHECK(count_text(79.7e9) == "79.70 B");
  CHECK(percent_text(0.4567) == "45.7%");
}

TEST_CASE("a number that rounds up to the next power of ten keeps four digits") {
  CHECK(to_text(Seconds{9.9999}) == "10.00 s");
  CHECK(to_text(Seconds{0.99999}) == "1.000 s");
}

TEST_CASE("columns are aligned by what a reader sees, not by bytes") {
  const Table table{.header = {"rank", "time"}, .rows = {{"0", "3.000 µs"}, {"10", "12.35 ms"}, {"last"}}};
  CHECK(to_text(table) == "  rank      time\n  0     3.000 µs\n  10    12.35 ms\n  last\n");
}
