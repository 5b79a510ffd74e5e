// Blocks that an action goes through while one stream moves: small cases by hand, any against the ends of all moves one
// by one, and that going further ahead never takes longer.
#include "common/cost/block_passage.hpp"

#include <limits>
#include <random>

#include "common/schedule/move_order.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

std::string text(int prefetch, std::size_t count) {
  const MoveOrder order(prefetch);
  std::string all;
  std::size_t issued = 0;
  for (std::size_t block = 0; issued < count; ++block) {
    all += "| ";
    for (; issued < order.issued(block) && issued < count; ++issued) {
      const MoveOrder::Move move = order.at(issued);
      all += (move.gathers ? "g" : "r") + std::to_string(move.block) + " ";
    }
  }
  return all;
}

// From the beginning of the first block until all is reduced.
double whole(const std::vector<PassedBlock>& blocks, int prefetch) {
  const BlockPassage way = passage(blocks, prefetch);
  Seconds sum = way.behind;
  for (std::size_t i = 0; i < blocks.size(); ++i) sum += blocks[i].computing + way.waits[i];
  return sum.value;
}

// When each move ends, as it is issued: behind the one before.
struct Ends {
  std::vector<double> gathered;
  std::vector<double> reduced;
  double stream = 0;

  explicit Ends(std::size_t blocks) : gathered(blocks), reduced(blocks) {}
  void move(double issued, Seconds time, double& end) { end = stream = std::max(stream, issued) + time.value; }
};

double one_by_one(const std::vector<PassedBlock>& blocks, std::size_t prefetch, std::vector<double>& reduced) {
  const std::size_t count = blocks.size();
  const std::size_t reductions = prefetch < 3 ? 1 : prefetch - 1;
  Ends ends(count);
  double now = 0;
  const auto gather = [&](std::size_t block) {
    if (block < count) ends.move(now, blocks[block].gathering, ends.gathered[block]);
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (prefetch == 1) gather(i + 1);
    if (i > 0) ends.move(now, blocks[i - 1].reducing, ends.reduced[i - 1]);
    for (std::size_t next = i == 0 ? 1 : i + prefetch; prefetch > 1 && next <= i + prefetch; ++next) gather(next);
    double next = std::max(now + blocks[i].computing.value, now + blocks[i].copying.value);
    if (i + 1 < count) next = std::max(next, ends.gathered[i + 1]);
    if (i >= reductions) next = std::max(next, ends.reduced[i - reductions]);
    now = next;
  }
  ends.move(now, blocks.back().reducing, ends.reduced.back());
  reduced = ends.reduced;
  return ends.stream;
}

std::vector<PassedBlock> any_blocks(std::mt19937& random, bool reduces) {
  std::uniform_real_distribution<double> time(0, 4);
  std::bernoulli_distribution long_one(0.2);
  std::vector<PassedBlock> blocks(1 + random() % 8);
  for (PassedBlock& block : blocks) {
    block = {.computing = {time(random)}, .gathering = {time(random)}};
    if (long_one(random)) block.gathering = block.gathering * 5.0;
    if (reduces) block.reducing = {time(random)};
    if (random() % 4 == 0) block.copying = {time(random)};
  }
  return blocks;
}

}  // namespace

TEST_CASE("moves are issued when a block begins, what the next one waits for first") {
  CHECK(text(1, 7) == "| g1 | g2 r0 | g3 r1 | g4 r2 ");
  CHECK(text(2, 8) == "| g1 g2 | r0 g3 | r1 g4 | r2 g5 ");
  CHECK(text(3, 9) == "| g1 g2 g3 | r0 g4 | r1 g5 | r2 g6 ");
  CHECK(reductions_under_way(0) == 0);
  CHECK(reductions_under_way(1) == 1);
  CHECK(reductions_under_way(2) == 1);
  CHECK(reductions_under_way(3) == 2);
}

// Gathered in 1, 2 and 3 s before 4, 1 and 1 s of computing; the first is there. One ahead: max(4, 2) + max(1, 3) + 1.
// Two ahead: gathered at 2 and 5, when the first two have computed.
TEST_CASE("three blocks that gather, by hand") {
  const std::vector<PassedBlock> blocks{{{4}, {1}}, {{1}, {2}}, {{1}, {3}}};
  CHECK(whole(blocks, 1) == 8);
  CHECK(whole(blocks, 2) == 6);
  CHECK(whole(blocks, 3) == 6);
}

// The same with 2, 2 and 1 s of reducing. One ahead: max(4, 2) + max(1, 3 + 2) + max(1, 2) + 1. Two ahead: gathered at
// 2 and 5; reduced at 7, before block 2 begins; at 9 and 10. Three ahead: block 2 begins at 5, as it is gathered.
TEST_CASE("three blocks that gather and reduce, by hand") {
  const std::vector<PassedBlock> blocks{{{4}, {1}, {2}}, {{1}, {2}, {2}}, {{1}, {3}, {1}}};
  CHECK(whole(blocks, 1) == 12);
  CHECK(whole(blocks, 2) == 10);
  CHECK(passage(blocks, 1).reduced == std::vector<Seconds>{{9}, {11}, {12}});
  CHECK(passage(blocks, 2).reduced == std::vector<Seconds>{{7}, {9}, {10}});
  CHECK(passage(blocks, 2).waits == std::vector<Seconds>{{0}, {2}, {1}});
  CHECK(passage(blocks, 3).waits == std::vector<Seconds>{{0}, {0}, {1}});
  CHECK(whole(blocks, 3) == 10);
}

TEST_CASE("any blocks take as long as their moves one by one") {
  std::mt19937 random(3);
  for (int round = 0; round < 600; ++round) {
    const std::vector<PassedBlock> blocks = any_blocks(random, round % 3 > 0);
    for (const int prefetch : {1, 2, 3, 5, 20}) {
      CAPTURE(round, prefetch);
      std::vector<double> reduced;
      REQUIRE(whole(blocks, prefetch) == Approx(one_by_one(blocks, static_cast<std::size_t>(prefetch), reduced)));
      const BlockPassage way = passage(blocks, prefetch);
      for (std::size_t i = 0; i < blocks.size(); ++i) REQUIRE(way.reduced[i].value == Approx(reduced[i]));
    }
  }
}

TEST_CASE("to go further ahead never takes longer, and one after the other never less") {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::vector<PassedBlock> blocks = any_blocks(random, round % 3 > 0);
    double before = std::numeric_limits<double>::max();
    for (int prefetch = 1; prefetch < 10; ++prefetch) {
      const double now = whole(blocks, prefetch);
      CAPTURE(round, prefetch);
      REQUIRE(now <= before + 1e-9);
      before = now;
    }
    double alone = -blocks.front().gathering.value;
    for (PassedBlock& block : blocks) {
      block.copying = {};
      alone += (block.computing + block.gathering + block.reducing).value;
    }
    REQUIRE(whole(blocks, 1) <= alone + 1e-9);
  }
}
