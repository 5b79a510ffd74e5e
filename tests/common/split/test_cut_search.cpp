// The local search against its own definition: where it ends, no move of one cut makes the split better.
#include "common/split/cut_search.hpp"

#include <random>

#include "common/schedule/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("where the local search ends no single cut can be moved to a better place") {
  std::mt19937 random(8);
  int moved_at_all = 0;
  for (int round = 0; round < 400; ++round) {
    const int ranks = pick(random, 2, 4);
    const int chunks = pick(random, 1, 3);
    const int layers = pick(random, ranks * chunks, 16);
    SplitProblem problem;
    problem.rank_of_stage = loop_placement(ranks, chunks);
    for (int block = 0; block < layers + 2; ++block) {
      // Mostly one block outweighs the others and sets the pace: what the others do is decided by the squares.
      const bool heavy = block == layers / 2 && round % 3 > 0;
      problem.block_times.push_back({heavy ? 40.0 : static_cast<double>(pick(random, 1, 9))});
      problem.block_fixed_bytes.push_back({pick(random, 1, 9)});
      problem.block_kept_bytes.push_back({pick(random, 0, 4)});
    }
    for (int rank = 0; rank < ranks; ++rank) problem.moments.push_back({Moment(static_cast<std::size_t>(chunks), 1)});
    const WeighedChain chain(problem);
    const auto limit = round % 2 == 0 ? std::nullopt : std::optional<std::int64_t>(pick(random, 30, 90));
    CutSearch search(chain, limit, pick(random, 0, chunks));
    const std::vector<int> start = cuts_of(uniform_split(layers, ranks * chunks));
    const std::vector<int> ended = search.improved(start);
    const CutOrder order = search.order_of(ended);
    REQUIRE(order <= search.order_of(start));
    moved_at_all += ended != start ? 1 : 0;
    CAPTURE(round, ranks, chunks, layers);
    for (std::size_t stage = 0; stage + 1 < ended.size(); ++stage) {
      std::vector<int> moved = ended;
      const int first = stage == 0 ? 1 : ended[stage - 1] + 1;
      for (moved[stage] = first; moved[stage] < ended[stage + 1]; ++moved[stage]) {
        REQUIRE(search.order_of(moved) >= order);
      }
    }
  }
  CHECK(moved_at_all > 300);
}
