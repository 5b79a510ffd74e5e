// The two bounds by themselves, where their formulas say what they are exactly: not only that nothing is below them.
#include "common/search/bounds.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "common/split/split.hpp"
#include "tests/catch.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Embedding, layers and head, of random times and bytes.
std::vector<ComputeCost> random_blocks(std::mt19937& random, int layers) {
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  std::vector<ComputeCost> blocks;
  for (int block = 0; block < layers + 2; ++block) {
    ComputeCost cost;
    cost.forward = {number(1, 9) * 1.0};
    cost.input_gradient = {number(1, 9) * 1.0};
    cost.weight_gradient = {number(1, 9) * 1.0};
    cost.parameter_bytes = {number(0, 40)};
    cost.gradient_bytes = {number(0, 40)};
    cost.optimizer_bytes = {number(0, 80)};
    cost.kept_bytes = {number(0, 60)};
    blocks.push_back(cost);
  }
  return blocks;
}

Bytes states(const ComputeCost& block) { return block.parameter_bytes + block.gradient_bytes + block.optimizer_bytes; }

// The smallest fullest stage of all splits.
Bytes least_by_trying_all(const std::vector<ComputeCost>& blocks, const BoundedFamily& family) {
  std::optional<Bytes> least;
  for_all_splits(static_cast<int>(blocks.size()) - 2, family.stages, [&](const Split& split) {
    Bytes fullest;
    for (int stage = 0; stage < family.stages; ++stage) {
      const BlockRange range = blocks_of_stage(split, stage);
      Bytes sum;
      for (int block = range.first; block < range.last; ++block) {
        const ComputeCost& cost = blocks[static_cast<std::size_t>(block)];
        sum +=
            states(cost) + (family.redone ? Bytes{} : cost.kept_bytes * family.held[static_cast<std::size_t>(stage)]);
      }
      fullest = std::max(fullest, sum);
    }
    least = std::min(least.value_or(fullest), fullest);
  });
  return least.value();
}

// The T with which S(s+1) = (1 − ρ/passes) S(s) + T/passes ends at W, by following the recursion.
double time_of_recursion(double work, double ratio, double passes, int stages) {
  double low = 0;
  double high = 2 * passes * work;
  for (int round = 0; round < 200; ++round) {
    const double middle = low + (high - low) / 2;
    double sum = 0;
    for (int stage = 0; stage < stages; ++stage) sum = (1 - ratio / passes) * sum + middle / passes;
    (sum < work ? low : high) = middle;
  }
  return high;
}

}  // namespace

TEST_CASE("the memory bound of a stage on each rank is the smallest fullest stage of all splits") {
  std::mt19937 random(7);
  int bound_by_held = 0;
  for (int round = 0; round < 200; ++round) {
    const int stages = std::uniform_int_distribution<int>(2, 5)(random);
    const std::vector<ComputeCost> blocks =
        random_blocks(random, std::uniform_int_distribution<int>(stages, 8)(random));
    BoundedFamily family{.ranks = stages, .stages = stages, .passes = 8};
    family.redone = round % 4 == 0;
    for (int rank = 0; rank < stages; ++rank) family.held.push_back(stages - rank);  // 1F1B's
    // Where blocks are few for their stages, the mean over the ranks may be more than a walk that leaves blocks over.
    const Bytes least = least_by_trying_all(blocks, family);
    CAPTURE(round, stages, blocks.size(), family.redone);
    CHECK(least_memory(blocks, family) == least);
    BoundedFamily one_each = family;
    one_each.held.clear();
    if (!family.redone && least_memory(blocks, one_each) < least) ++bound_by_held;
  }
  CHECK(bound_by_held > 100);
}

TEST_CASE("the time bound is the largest of the mean rank, the heaviest block and the recursion over stages") {
  std::mt19937 random(11);
  std::array<int, 3> decides = {0, 0, 0};
  for (int round = 0; round < 300; ++round) {
    const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
    std::vector<ComputeCost> blocks = random_blocks(random, number(2, 10));
    if (round % 3 == 0) blocks.back().forward = {200.0};
    for (ComputeCost& block : blocks) block.optimizer = {number(0, round % 3 == 1 ? 2000 : 3) * 1.0};
    BoundedFamily family{.ranks = number(1, 6), .stages = 1, .passes = number(1, 12), .overhead = {3}};
    family.stages = family.ranks * (round % 5 == 0 ? 2 : 1);
    family.replicas = round % 7 == 0 ? 2 : 1;
    family.splits_backward = round % 2 == 0;
    const bool divided = round % 4 == 1 && family.stages == family.ranks && family.replicas == 1;
    if (divided) family.parts = {.passing = {number(2, 9) * 1.0}, .in_between = {1}, .optimizer = {2}};
    const BoundedParts& parts = family.parts;
    double work = 0;
    double optimizer = 0;
    double heaviest = 0;
    double ratio = 1;
    for (const ComputeCost& block : blocks) {
      const double all = (block.forward + block.input_gradient + block.weight_gradient).value;
      work += all;
      optimizer += block.optimizer.value;
      heaviest = std::max(heaviest, all);
      ratio = std::min(ratio, (family.splits_backward ? block.forward.value : all) / all);
    }
    const auto passes = static_cast<double>(family.passes);
    const bool applies = family.stages == family.ranks && family.replicas == 1;
    // Each rank works for its parts, too; of the recursion's passes only what must lie between first and last.
    const std::array<double, 3> bounds = {
        (passes * work + optimizer) / family.ranks + passes * parts.passing.value + parts.optimizer.value,
        passes * heaviest / family.replicas + passes * parts.passing.value,
        applies ? time_of_recursion(work, ratio, passes, family.ranks) + passes * parts.in_between.value : 0};
    const auto largest = std::ranges::max_element(bounds);
    ++decides.at(static_cast<std::size_t>(largest - bounds.begin()));
    CAPTURE(round, bounds[0], bounds[1], bounds[2]);
    CHECK(least_time(blocks, family).value == Approx(*largest + 3).epsilon(1e-9));
  }
  for (const int count : decides) CHECK(count > 30);
}
