// Cuts whose stages share ranks: what is left when the search runs out of steps.
#include "common/split/coupled.hpp"

#include <algorithm>
#include <random>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr int blocks = 9;
constexpr int stage_count = 4;
const std::vector<int> rank_of_stage{0, 1, 0, 1};

// Two moments of each rank, of which sometimes the one takes more and sometimes the other.
SplitProblem random_problem(std::mt19937& random) {
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  SplitProblem problem;
  problem.rank_of_stage = rank_of_stage;
  for (int block = 0; block < blocks; ++block) {
    problem.block_times.push_back({1});
    problem.block_fixed_bytes.push_back({pick(1, 40)});
    problem.block_kept_bytes.push_back({pick(1, 20)});
  }
  for (int rank = 0; rank < 2; ++rank) problem.moments.push_back({{pick(1, 4), pick(1, 4)}, {pick(1, 4), pick(1, 4)}});
  return problem;
}

bool fits(const WeighedChain& chain, const std::vector<int>& cuts, std::int64_t limit) {
  return chain.rank_bytes(0, cuts) <= limit && chain.rank_bytes(1, cuts) <= limit;
}

}  // namespace

TEST_CASE("a search without steps left is told to the user, and keeps the best that it knows") {
  std::mt19937 random(1);
  StageWindows windows(stage_count);
  for (auto& window : windows) {
    for (int start = 0; start < blocks; ++start) window.push_back({start + 1, blocks});
  }
  int told = 0;
  int shorter = 0;
  for (int i = 0; i < 2000; ++i) {
    const SplitProblem problem = random_problem(random);
    const WeighedChain chain(problem);
    const std::int64_t limit = std::uniform_int_distribution<std::int64_t>(200, 330)(random);
    const CoupledLimits limits{.bytes = limit};
    CoupledCuts patient(chain, limits);
    const auto known = patient.any(windows);
    try {
      const auto found = CoupledCuts(chain, limits, 0).any(windows);
      CHECK(found.has_value() == known.has_value());
    } catch (const InputError& error) {
      CHECK_THAT(error.what(), ContainsSubstring("takes too long to prove"));
      ++told;
    }
    if (!known) continue;
    const auto largest = patient.largest(windows, *known);
    const auto hasty = CoupledCuts(chain, limits, 0).largest(windows, *known);
    REQUIRE(fits(chain, hasty, limit));
    REQUIRE(*known <= hasty);
    REQUIRE(hasty <= largest);
    if (hasty != largest) ++shorter;
  }
  CHECK(told > 0);
  CHECK(shorter > 0);
}
