#include "common/base/text.hpp"

#include <limits>

#include "common/base/excerpt.hpp"
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
  CHECK(change_text(-0.1) == "-10.0%");
  CHECK(change_text(0.0123) == "+1.2%");
  CHECK(change_text(-1e-5) == "+0.0%");
}

TEST_CASE("a number that rounds up to the next power of ten keeps four digits") {
  CHECK(to_text(Seconds{9.9999}) == "10.00 s");
  CHECK(to_text(Seconds{0.99999}) == "1.000 s");
}

TEST_CASE("numbers become one sign, and digits of a name stay") {
  CHECK(without_numbers("a 2.5d tensor layout of depth 12 needs 12·q² ranks, not 8") ==
        "a #.5d tensor layout of depth # needs #·q² ranks, not #");
  CHECK(without_numbers("a 2d tensor layout of degree 4") != without_numbers("a 3d tensor layout of degree 4"));
  CHECK(without_numbers("1f1b, zb-h1: 64") == "1f1b, zb-h#: #");
  CHECK(without_numbers("") == "");
}

TEST_CASE("excerpts are short and contain no terminal escapes") {
  CHECK(excerpt("0F3") == "0F3");
  CHECK(excerpt(std::string(40, '(')) == std::string(40, '('));
  CHECK(excerpt(std::string(1 << 20, '(')) == std::string(40, '(') + "…");
  CHECK(excerpt("µs, 日本, 😀") == "µs, 日本, 😀");
  CHECK(excerpt(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(excerpt("\x1b[31m\r\n\x7f") == "\\x1b[31m\\x0d\\x0a\\x7f");
  // Bytes that begin no character, a half one, an overlong one, half of a UTF-16 pair, beyond Unicode, a C1 control.
  for (const std::string wrong : {"\x80", "\xff", "\xc3", "\xe2\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                                  "\xf4\x90\x80\x80", "\xc2\x9b"}) {
    const std::string shown = excerpt(wrong);
    CHECK(shown.size() == 4 * wrong.size());
    CHECK(shown.starts_with("\\x"));
  }
  CHECK(printable("two\nlines\x07") == "two\nlines\\x07");
}

TEST_CASE("columns are aligned by what a reader sees, not by bytes") {
  const Table table{.header = {"rank", "time"}, .rows = {{"0", "3.000 µs"}, {"10", "12.35 ms"}, {"last"}}};
  CHECK(to_text(table) == "  rank      time\n  0     3.000 µs\n  10    12.35 ms\n  last\n");
}
