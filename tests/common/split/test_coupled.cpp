// Cuts whose stages share ranks: what is left when the search runs out of steps.
#include "common/split/coupled.hpp"

#include <algorithm>
#include <random>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr int blocks = 9;
constexpr int stages = 4;
const std::vector<int> rank_of_stage{0, 1, 0, 1};

StageMemory random_memory(std::mt19937& random) {
  std::uniform_int_distribution<std::int64_t> bytes(1, 100);
  StageMemory memory;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<std::int64_t> before{0};
    for (int block = 0; block < blocks; ++block) before.push_back(before.back() + bytes(random));
    memory.before.push_back(before);
  }
  return memory;
}

bool fits(const StageMemory& memory, const std::vector<int>& cuts, std::int64_t limit) {
  std::vector<std::int64_t> held(2, 0);
  int start = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int end = cuts[static_cast<std::size_t>(stage)];
    held[static_cast<std::size_t>(rank_of_stage[static_cast<std::size_t>(stage)])] += memory.of(stage, start, end);
    start = end;
  }
  return std::ranges::all_of(held, [&](std::int64_t bytes) { return bytes <= limit; });
}

}  // namespace

TEST_CASE("a search without steps left is told to the user, and keeps the best that it knows") {
  std::mt19937 random(1);
  StageWindows windows(stages);
  for (auto& window : windows) {
    for (int start = 0; start < blocks; ++start) window.push_back({start + 1, blocks});
  }
  int told = 0;
  int shorter = 0;
  for (int i = 0; i < 2000; ++i) {
    const StageMemory memory = random_memory(random);
    const std::int64_t limit = std::uniform_int_distribution<std::int64_t>(180, 260)(random);
    CoupledCuts patient(memory, rank_of_stage, 2, limit);
    const auto known = patient.any(windows);
    try {
      const auto found = CoupledCuts(memory, rank_of_stage, 2, limit, 0).any(windows);
      CHECK(found.has_value() == known.has_value());
    } catch (const InputError& error) {
      CHECK_THAT(error.what(), ContainsSubstring("takes too long to prove"));
      ++told;
    }
    if (!known) continue;
    const auto largest = patient.largest(windows, *known);
    const auto hasty = CoupledCuts(memory, rank_of_stage, 2, limit, 0).largest(windows, *known);
    REQUIRE(fits(memory, hasty, limit));
    REQUIRE(*known <= hasty);
    REQUIRE(hasty <= largest);
    if (hasty != largest) ++shorter;
  }
  CHECK(told > 0);
  CHECK(shorter > 0);
}
