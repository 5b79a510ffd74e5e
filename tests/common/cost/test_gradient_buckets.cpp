// Gradients that are reduced in buckets, against closed forms and against buckets gone through one by one.
#include "common/cost/gradient_buckets.hpp"

#include <algorithm>
#include <random>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

Machine machine(double latency) {
  Machine result{.name = "made up", .devices = 8};
  result.collective_bandwidth.value = {2e9};
  result.collective_latency.value = {latency};
  return result;
}

constexpr GroupPlacement ring{.ranks = 4, .per_machine = 4};

// A ring's: 2·3/4 of the bytes at 2 GB/s.
double seconds(double bytes) { return 1.5 * bytes / 2e9; }

Seconds backward_of(const std::vector<BlockGradients>& blocks) {
  Seconds sum;
  for (const BlockGradients& block : blocks) sum += block.backward;
  return sum;
}

double exposed_of(const std::vector<BlockGradients>& blocks, Bytes bucket, double latency = 0) {
  const auto sum = [&](Bytes bytes) {
    return fastest_collective(machine(latency), Collective::all_reduce, static_cast<double>(bytes.value), ring);
  };
  return exposed(bucketed_reduction(sum, blocks, bucket), backward_of(blocks)).value;
}

}  // namespace

// n blocks, each a bucket that takes c beside a backward of b: where c ≤ b all but the last are hidden, else they stand
// one behind the other from the end of the first block's backward on.
TEST_CASE("equal blocks of a bucket each show the last one, or what does not fit behind all but the first") {
  const Bytes bytes{1'000'000'000};
  const double c = seconds(1e9);
  for (const int n : {1, 2, 12}) {
    const std::vector<BlockGradients> slow(static_cast<std::size_t>(n), {{2 * c}, bytes});
    CHECK(exposed_of(slow, bytes) == Approx(c));
    const std::vector<BlockGradients> fast(static_cast<std::size_t>(n), {{c / 3}, bytes});
    CHECK(exposed_of(fast, bytes) == Approx(n * c - (n - 1) * c / 3));
  }
}

TEST_CASE("one bucket stands behind the backward, whatever is in it") {
  const std::vector<BlockGradients> blocks{{{3}, {700}}, {{1}, {0}}, {{2}, {1'000'000}}};
  CHECK(exposed_of(blocks, {std::int64_t{1} << 40}) == Approx(seconds(1'000'700)));
}

TEST_CASE("buckets follow one another, each when its last gradient is there") {
  std::mt19937 random(7);
  const auto number = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockGradients> blocks;
    for (int block = number(9); block >= 0; --block) {
      blocks.push_back({{number(1000) * 1e-3}, {std::int64_t{number(1000)} * 1'000'000}});
    }
    const Bytes bucket{(1 + std::int64_t{number(400)}) * 1'000'000};
    const double latency = number(20) * 1e-3;
    // One by one: the bytes in the order in which they are made.
    std::int64_t all = 0;
    for (const BlockGradients& block : blocks) all += block.bytes.value;
    double free = 0;
    for (std::int64_t begin = 0; begin < all; begin += bucket.value) {
      const std::int64_t end = std::min(begin + bucket.value, all);
      double ready = 0;
      std::int64_t made = 0;
      for (const BlockGradients& block : blocks) {
        ready += block.backward.value;
        made += block.bytes.value;
        if (made >= end) break;
      }
      free = std::max(free, ready) + latency + seconds(static_cast<double>(end - begin));
    }
    const double backward = backward_of(blocks).value;
    CHECK(exposed_of(blocks, bucket, latency) == Approx(std::max(free - backward, 0.0)).margin(1e-9));
  }
}

namespace {

CollectivePlan lasting(double seconds) {
  CollectivePlan plan{.count = 1};
  plan.phases.front().time = {seconds};
  return plan;
}

std::vector<CollectivePlan> lasting(const std::vector<double>& seconds) {
  std::vector<CollectivePlan> plans;
  for (const double each : seconds) plans.push_back(lasting(each));
  return plans;
}

}  // namespace

// Two blocks of 3 s, a bucket each, 2 s within a copy: the first is there at 5, the second at 8. Over the copies 4 s
// and 1 s: 5 to 9 and 9 to 10 of a backward of 6. As one of 5 s, from 8 to 13. Of a first one of 12 s, from 5 to 17
// and 18. If the actions reduce them, the second one's with their end: 3 to 7 and 7 to 8; with 2 s for what they do not
// reduce, which is there at 8, and 3 s over copies: 8 to 11.
TEST_CASE("two buckets over copies by hand") {
  const Machine one = [] {
    Machine made = machine(0);
    made.collective_bandwidth.value = {0.75e9};  // a reduce-scatter over four of 2 GB takes 2 s
    return made;
  }();
  const Bytes bytes{2'000'000'000};
  const auto scatter = [&](Bytes of) {
    return fastest_collective(one, Collective::reduce_scatter, static_cast<double>(of.value), ring);
  };
  StageReduction reduction{
      .shards = bucketed_reduction(scatter, std::vector<BlockGradients>{{{3}, bytes}, {{3}, bytes}}, bytes)};
  CHECK(exposed(reduction, {6}).value == Approx(2));
  reduction.copies = lasting({4, 1});
  CHECK(exposed(reduction, {6}).value == Approx(4));
  reduction.copies = lasting({1, 4});
  CHECK(exposed(reduction, {6}).value == Approx(6));
  reduction.copies = lasting(std::vector<double>{5});
  CHECK(exposed(reduction, {6}).value == Approx(7));
  reduction.copies = lasting({12, 1});
  CHECK(exposed(reduction, {6}).value == Approx(12));
  StageReduction in_actions{.reduced = {{3}, {6}}, .copies = lasting({4, 1})};
  CHECK(exposed(in_actions, {6}).value == Approx(2));
  in_actions.shards = lasting(std::vector<double>{2});
  in_actions.copies = lasting({4, 1, 3});
  CHECK(exposed(in_actions, {6}).value == Approx(5));
}

TEST_CASE("with nothing beside it a sum over copies stands behind the one within a copy") {
  CHECK(exposed({.shards = lasting(std::vector<double>{2}), .copies = lasting(std::vector<double>{5})}, {}) ==
        Seconds{7});
}

TEST_CASE("buckets of so many parameters grow with the ranks, and are in the bytes of the main gradients") {
  Software software{.data_bucket = {.parameters = 40'000'000, .parameters_per_rank = 1'000'000, .bytes = {}}};
  CHECK(bucket_bytes(software, 8) == Bytes{160'000'000});
  CHECK(bucket_bytes(software, 64) == Bytes{256'000'000});
  software.gradients = ElementType::bf16;
  CHECK(bucket_bytes(software, 64) == Bytes{128'000'000});
  CHECK(bucket_bytes(Software{}, 64) == Bytes{25 << 20});
}
