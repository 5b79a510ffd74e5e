// Which blocks of a stage are gathered as one: lists by hand, of ten layers between an embedding and a head.
#include "common/split/gathered_units.hpp"

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("layers are gathered from the first of their stage on, the embedding and the head alone") {
  constexpr int head = 11;
  CHECK(unit_sizes({0, 12}, head, 1) == std::vector<int>(12, 1));
  CHECK(unit_sizes({0, 12}, head, 4) == std::vector<int>{1, 4, 4, 2, 1});
  CHECK(unit_sizes({0, 12}, head, 100) == std::vector<int>{1, 10, 1});
  CHECK(unit_sizes({0, 4}, head, 2) == std::vector<int>{1, 2, 1});
  CHECK(unit_sizes({4, 9}, head, 2) == std::vector<int>{2, 2, 1});
  CHECK(unit_sizes({9, 12}, head, 2) == std::vector<int>{2, 1});
  CHECK(unit_sizes({11, 12}, head, 2) == std::vector<int>{1});
  CHECK(unit_sizes({0, 1}, head, 2) == std::vector<int>{1});
}
