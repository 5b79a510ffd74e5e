// Lists of ranges against brute force: every element of random lists, one by one.
#include "common/placement/index_ranges.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

std::vector<std::int64_t> listed(const IndexRanges& ranges) {
  std::vector<std::int64_t> all;
  for (const IndexRange& range : ranges) {
    for (std::int64_t index = range.begin; index < range.end; ++index) all.push_back(index);
  }
  return all;
}

// Of a whole of `size`: cut anywhere, some pieces left out, the rest in any order in one draw of three.
IndexRanges drawn(std::mt19937& random, std::int64_t size) {
  IndexRanges ranges;
  for (std::int64_t at = 0; at < size;) {
    const std::int64_t next = std::min<std::int64_t>(size, at + 1 + static_cast<std::int64_t>(random() % 7));
    if (random() % 3 != 0) ranges.push_back({at, next});
    at = next;
  }
  if (random() % 3 == 0) std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

}  // namespace

TEST_CASE("intersections, parts and runs of ranges equal counting element by element") {
  std::mt19937 random(1);
  for (int draw = 0; draw < plumb::testing::cases(500); ++draw) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(random() % 60);
    const IndexRanges a = drawn(random, size);
    const IndexRanges b = drawn(random, size);
    const std::vector<std::int64_t> in_a = listed(a);
    const std::vector<std::int64_t> in_b = listed(b);
    REQUIRE(elements(a) == static_cast<std::int64_t>(in_a.size()));
    std::vector<std::vector<bool>> found(in_a.size(), std::vector<bool>(in_b.size(), false));
    std::int64_t last = -1;
    bool ascending = true;
    for (const SharedStretch& each : shared_stretches(a, b)) {
      REQUIRE(each.count > 0);
      REQUIRE((each.in_first >= 0 && each.in_first + each.count <= elements(a)));
      REQUIRE((each.in_second >= 0 && each.in_second + each.count <= elements(b)));
      for (std::int64_t i = 0; i < each.count; ++i) {
        const auto x = static_cast<std::size_t>(each.in_first + i);
        ascending = ascending && in_a[x] > last;
        last = in_a[x];
        found[x][static_cast<std::size_t>(each.in_second + i)] = true;
      }
    }
    CHECK(ascending);
    bool as_counted = true;
    for (std::size_t x = 0; x < in_a.size(); ++x) {
      for (std::size_t y = 0; y < in_b.size(); ++y) as_counted = as_counted && found[x][y] == (in_a[x] == in_b[y]);
    }
    REQUIRE(as_counted);
    const auto first = static_cast<std::int64_t>(random() % (in_a.size() + 1));
    const auto end = first + static_cast<std::int64_t>(random() % (in_a.size() + 1 - static_cast<std::size_t>(first)));
    REQUIRE(listed(part_of(a, first, end)) == std::vector(in_a.begin() + first, in_a.begin() + end));
    const std::vector<IndexRun> runs = runs_of(a);
    REQUIRE(listed(ranges_of(runs)) == in_a);
    for (const IndexRun& run : runs) REQUIRE(is_within(run, size));
    REQUIRE(runs.size() <= a.size());
  }
}

TEST_CASE("a column of a matrix is one run, and so is what touches") {
  IndexRanges column;
  for (std::int64_t row = 0; row < 1000; ++row) column.push_back({row * 64 + 16, row * 64 + 32});
  CHECK(runs_of(column) == std::vector<IndexRun>{{.begin = 16, .size = 16, .stride = 64, .count = 1000}});
  CHECK(runs_of({{0, 4}, {4, 9}, {9, 9}}) == std::vector<IndexRun>{{.begin = 0, .size = 9, .stride = 9, .count = 1}});
  CHECK(runs_of({}).empty());
}

TEST_CASE("runs of others are within their tensor or refused, without overflow") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(is_within({.begin = 16, .size = 16, .stride = 64, .count = 1000}, 64'000 - 32));
  CHECK_FALSE(is_within({.begin = 16, .size = 16, .stride = 64, .count = 1000}, 64'000 - 33));
  CHECK_FALSE(is_within({.begin = 0, .size = 2, .stride = 1, .count = 2}, 10));
  CHECK_FALSE(is_within({.begin = 0, .size = 0, .stride = 1, .count = 1}, 10));
  CHECK_FALSE(is_within({.begin = -1, .size = 1, .stride = 1, .count = 1}, 10));
  CHECK_FALSE(is_within({.begin = most, .size = 1, .stride = 1, .count = 1}, 10));
  CHECK_FALSE(is_within({.begin = 0, .size = most, .stride = most, .count = most}, most));
  CHECK_FALSE(is_within({.begin = 1, .size = 1, .stride = most, .count = 2}, most));
  CHECK(is_within({.begin = 0, .size = 1, .stride = most - 1, .count = 2}, most));
  CHECK_FALSE(is_within({.begin = 0, .size = 1, .stride = 1, .count = most}, 10));
}
