#include "exec/transport/collectives/blocks.hpp"

#include <algorithm>
#include <numeric>

#include "tests/catch.hpp"

using plumb::exec::blocks_of;

TEST_CASE("an all-reduce's blocks are the whole, and only the first may be long") {
  for (const std::size_t ranks : {1, 2, 3, 5}) {
    for (const std::size_t few : {1, 2, 7}) {
      for (std::size_t elements = 0; elements < 400; ++elements) {
        const std::vector<std::size_t> blocks = blocks_of(elements, ranks, few);
        INFO(elements << " elements, " << ranks << " ranks, " << few);
        REQUIRE(std::accumulate(blocks.begin(), blocks.end(), std::size_t{0}) == elements);
        REQUIRE(blocks.front() <= (2 * few + blocks.size() - 1) * ranks);
        for (std::size_t block = 1; block < blocks.size(); ++block) REQUIRE(blocks[block] <= few * ranks);
        // All but the last are whole parts for each rank: bytes are counted as if there was one block.
        for (std::size_t block = 0; block + 1 < blocks.size(); ++block) {
          REQUIRE((blocks[block] % ranks == 0 || blocks[block + 1] == 0));
        }
      }
    }
  }
}

TEST_CASE("no size's blocks are the beginning of another's, so that ranks notice where theirs differ") {
  for (const std::size_t ranks : {1, 2, 3}) {
    for (const std::size_t few : {1, 4}) {
      for (std::size_t less = 0; less < 120; ++less) {
        for (std::size_t more = less + 1; more < 130; ++more) {
          const std::vector<std::size_t> a = blocks_of(less, ranks, few);
          const std::vector<std::size_t> b = blocks_of(more, ranks, few);
          const std::size_t both = std::min(a.size(), b.size());
          INFO(less << " and " << more << " elements, " << ranks << " ranks, " << few);
          REQUIRE_FALSE(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(both), b.begin()));
        }
      }
    }
  }
}
