// Who writes what: every element that some rank holds once, by one that holds it, shared out evenly.
#include "exec/checkpoint/write_shares.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "exec/checkpoint/crc32c.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::multiset<std::int64_t> listed(const IndexRanges& ranges) {
  std::multiset<std::int64_t> all;
  for (const IndexRange& range : ranges) {
    for (std::int64_t index = range.begin; index < range.end; ++index) all.insert(index);
  }
  return all;
}

}  // namespace

TEST_CASE("each element is written once, by a rank that holds it") {
  std::mt19937 random(5);
  for (int draw = 0; draw < 500; ++draw) {
    const std::size_t holders = 1 + random() % 5;
    std::vector<IndexRanges> held(holders);
    for (IndexRanges& list : held) {
      if (&list != &held.front() && random() % 3 == 0) {
        list = held.front();  // a copy
        continue;
      }
      for (std::int64_t at = 0; at < 40;) {
        const std::int64_t next = at + 1 + static_cast<std::int64_t>(random() % 9);
        if (random() % 2 == 0) list.push_back({at, std::min<std::int64_t>(next, 40)});
        at = next;
      }
    }
    const std::vector<IndexRanges> shares =
        write_shares(held, 1 + static_cast<std::int64_t>(random() % 4), random() % 7);
    REQUIRE(shares.size() == holders);
    std::multiset<std::int64_t> written;
    std::set<std::int64_t> wanted;
    for (std::size_t holder = 0; holder < holders; ++holder) {
      const auto own = listed(held[holder]);
      const auto mine = listed(shares[holder]);
      REQUIRE(std::ranges::includes(own, mine));
      written.insert(mine.begin(), mine.end());
      REQUIRE(std::ranges::is_sorted(shares[holder], {}, &IndexRange::begin));
      wanted.insert(own.begin(), own.end());
    }
    REQUIRE(std::ranges::equal(written, wanted));
  }
}

TEST_CASE("copies are shared out evenly, and small tensors in turn") {
  const std::vector<IndexRanges> copies(4, {{0, 10}});
  CHECK(write_shares(copies, 1, 0) == std::vector<IndexRanges>{{{0, 3}}, {{3, 6}}, {{6, 8}}, {{8, 10}}});
  CHECK(write_shares(copies, 5, 1) == std::vector<IndexRanges>{{}, {{0, 5}}, {{5, 10}}, {}});
  CHECK(write_shares(copies, 100, 6) == std::vector<IndexRanges>{{}, {}, {{0, 10}}, {}});
}

// RFC 3720, appendix B.4, and the catalogue's check value.
TEST_CASE("CRC-32C has the values of its standard, however the bytes are cut") {
  const auto of = [](const std::string& text, std::uint32_t before = 0) {
    return crc32c(std::as_bytes(std::span(text)), before);
  };
  CHECK(of("123456789") == 0xe3069283);
  CHECK(of(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(of(std::string(32, '\xff')) == 0x62a8ab43);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending.push_back(byte);
  CHECK(of(ascending) == 0x46dd794e);
  for (std::size_t cut = 0; cut <= ascending.size(); ++cut) {
    CHECK(of(ascending.substr(cut), of(ascending.substr(0, cut))) == 0x46dd794e);
  }
}
