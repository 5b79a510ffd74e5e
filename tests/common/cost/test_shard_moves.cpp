// What data-parallel ranks move, quantised or not: bytes and times by the formulas of arXiv 2306.10209, on machines of
// round numbers.
#include "common/cost/shard_moves.hpp"

#include <random>

#include "common/cost/block_quantisation.hpp"
#include "common/placement/weight_rule.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// 1000 B/s of rings, 100 B/s of a NIC, 10 s before a collective's first byte; memory of 2000 B/s, half of it reached,
// 1 s between kernels.
Machine round_machine() {
  Machine result;
  result.devices = 4;
  result.collective_bandwidth.value = {1000};
  result.outside.bandwidth.value = {100};
  result.collective_latency.value = {10};
  result.device.memory_bandwidth.value = {2000};
  result.device.memory_efficiency.value = 0.5;
  result.device.kernel_gap.value = {1};
  return result;
}

constexpr double memory_rate = 1000;  // B/s
constexpr double int8_bytes = 8.0 / 8 + 4.0 / 128;
constexpr double int4_bytes = 4.0 / 8 + 4.0 / 128;

DataLayout zero3(int degree) { return {.degree = degree, .sharding = Sharding::zero3, .reshard_after_forward = true}; }

const ShardGroups eight_ranks{.all = {.ranks = 8, .per_machine = 4, .ranks_per_nic = 1},
                              .inside = {.ranks = 4, .per_machine = 4},
                              .across = {.ranks = 2, .per_machine = 1, .ranks_per_nic = 1}};

ShardMoves moves(const Machine& machine, const DataLayout& data) {
  return {machine, data, {ElementType::bf16, ElementType::fp32, Collective::reduce_scatter}, eight_ranks};
}

}  // namespace

TEST_CASE("a block of 128 elements has a byte, or half of one, for each, and four of its scale") {
  CHECK(quantised(2 * 128, ElementType::bf16, 8) == 128 + 4);
  CHECK(quantised(4 * 128, ElementType::fp32, 8) == 128 + 4);
  CHECK(quantised(4 * 128, ElementType::fp32, 4) == 64 + 4);
  CHECK(quantised(2 * 128 * 10, ElementType::bf16, quantised_gradient_bits) == 10 * (64 + 4));
}

TEST_CASE(
    "a block that ends early has a whole scale, and of an odd number of int4 the last one has a byte of its own") {
  CHECK(quantised_bytes(0, 8) == Bytes{0});
  CHECK(quantised_bytes(1, 8) == Bytes{1 + 4});
  CHECK(quantised_bytes(1, 4) == Bytes{1 + 4});
  CHECK(quantised_bytes(128, 4) == Bytes{64 + 4});
  CHECK(quantised_bytes(129, 8) == Bytes{129 + 2 * 4});
  CHECK(quantised_bytes(129, 4) == Bytes{65 + 2 * 4});
  // 2, 1, 1 and 1 of five; of three nothing for the last.
  CHECK(quantised_in_parts(5, 4, 4) == Bytes{4 * (1 + 4)});
  CHECK(quantised_in_parts(3, 4, 8) == Bytes{3 * (1 + 4)});
  CHECK(quantised_in_parts(4 * 130, 4, 8) == Bytes{4 * (130 + 2 * 4)});
}

// Rings: of an all-gather 5 s, half of the latency, and 7/8 of the bytes at 4 shares of the NIC.
TEST_CASE("without quantisation weights are gathered and gradients reduced over all ranks, as they are") {
  const Machine on = round_machine();
  const ShardMoves plain = moves(on, zero3(8));
  const double time = 5 + 7.0 / 8 * 8000 / 400;
  CHECK(time_of(plain.gathering({8000})).value == Approx(time));
  CHECK(plain.gathering_again({8000}) == plain.gathering({8000}));
  CHECK(time_of(plain.reduction({8000})).value == Approx(time));
}

TEST_CASE("quantised weights take a kernel before the gather and one behind it, and a second copy one more") {
  const Machine on = round_machine();
  DataLayout data = zero3(8);
  data.quantized_weights = true;
  const double elements = 4000;
  const double gathered = elements * int8_bytes;
  const double kernels = (8000 + gathered) / 8 / memory_rate + (gathered + 8000) / memory_rate + 2;
  const double time = 5 + 7.0 / 8 * gathered / 400 + kernels;
  CHECK(time_of(moves(on, data).gathering({8000})).value == Approx(time).epsilon(1e-9));
  CHECK(moves(on, data).gathering_again({8000}) == moves(on, data).gathering({8000}));
  data.secondary_shard = 4;
  const double copied = 2 * 8000.0 / 4 / memory_rate + 1;
  CHECK(time_of(moves(on, data).gathering({8000})).value == Approx(time + copied).epsilon(1e-9));
  // As they are, at the machine's own speed.
  const CollectivePlan again = moves(on, data).gathering_again({8000});
  CHECK(time_of(again).value == Approx(5 + 3.0 / 4 * 8000 / 1000));
  CHECK(again.phases.front().among == Among::inside);
  CHECK(again.phases.front().outside == 0);
}

// 2000 gradients on each of 8 ranks: 1062.5 bytes of 8000, exchanged among 4, whose 500 sums each are 265.625 bytes.
TEST_CASE("quantised gradients are exchanged inside and across, with a sum behind either") {
  const Machine on = round_machine();
  DataLayout data = zero3(8);
  data.quantized_gradients = 4;
  const CollectivePlan plan = moves(on, data).reduction({8000});
  REQUIRE(plan.count == 2);
  const double whole = 2000 * int4_bytes;
  const double quarter = 500 * int4_bytes;
  CHECK(plan.phases[0].among == Among::inside);
  CHECK(plan.phases[1].among == Among::across);
  CHECK(plan.phases[0].inside == Approx(3.0 / 4 * whole));
  CHECK(plan.phases[0].outside == 0);
  CHECK(plan.phases[1].outside == Approx(1.0 / 2 * quarter));
  CHECK(plan.phases[1].inside == 0);
  const double first = (8000 + whole + whole + 4 * 500) / memory_rate + 2;
  const double second = (4 * 500 + quarter + quarter + 4 * 250) / memory_rate + 2;
  CHECK(plan.phases[0].time.value == Approx(10 + 3.0 / 4 * whole / 1000 + first));
  CHECK(plan.phases[1].time.value == Approx(10 + 1.0 / 2 * quarter / 100 + second));
  // One exchange where there are no groups between one rank and all.
  for (const int inside : {1, 8}) {
    data.quantized_gradients = inside;
    const CollectivePlan one = moves(on, data).reduction({8000});
    REQUIRE(one.count == 1);
    CHECK(one.phases[0].among == Among::all);
    CHECK(one.phases[0].time.value ==
          Approx(10 + 7.0 / 8 * whole / 400 + (8000 + whole + whole + 4 * 250) / memory_rate + 2));
  }
}

// By counting messages: of each of the parts that the ranks have, a rank gets all but its own.
TEST_CASE("received bytes are the sum of a rank's messages") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int inside = 1 + static_cast<int>(random() % 8);
    const int machines = 1 + static_cast<int>(random() % 8);
    const int all = inside * machines;
    const double part = 128.0 * (1 + static_cast<double>(random() % 1000));  // elements of each rank
    Layout layout;
    layout.data = zero3(all);
    if (all == 1) continue;
    const Bytes weights{static_cast<std::int64_t>(2 * part * all)};
    const Bytes gradients{static_cast<std::int64_t>(4 * part * all)};
    CHECK(received_in_gather(layout, ElementType::bf16, weights) == (all - 1) * 2 * part);
    CHECK(received_in_second_gather(layout, ElementType::bf16, weights) == (all - 1) * 2 * part);
    CHECK(received_in_reduction(layout, ElementType::fp32, gradients) == (all - 1) * 4 * part);
    layout.data.quantized_weights = true;
    layout.data.quantized_gradients = inside;
    CHECK(received_in_gather(layout, ElementType::bf16, weights) == Approx((all - 1) * part * int8_bytes));
    CHECK(received_in_second_gather(layout, ElementType::bf16, weights) == Approx((all - 1) * part * int8_bytes));
    double messages = 0;
    for (int peer = 1; peer < inside; ++peer) messages += part * machines * int4_bytes;
    for (int peer = 1; peer < machines; ++peer) messages += part * int4_bytes;
    CHECK(received_in_reduction(layout, ElementType::fp32, gradients) == Approx(messages));
    if (inside == 1) continue;
    layout.data.secondary_shard = inside;
    CHECK(received_in_second_gather(layout, ElementType::bf16, weights) == Approx((inside - 1) * 2 * part * machines));
  }
}

// Message by message: from all others their part; of gradients from each of `inside` neighbours what all groups' ranks
// in one's place will have, and from those ranks the own part.
TEST_CASE("with unequal parts that end within a block, ranks receive the mean of all messages, to the byte") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int inside = 1 + static_cast<int>(random() % 4);
    const int groups = 1 + static_cast<int>(random() % 4);
    const int all = inside * groups;
    if (all == 1) continue;
    const auto elements = static_cast<std::int64_t>(1 + random() % (round % 2 == 0 ? 64 : 5000));
    CAPTURE(inside, groups, elements);
    const auto bytes = [&](int part, int bits) {
      const std::int64_t own = elements / all + (part < elements % all ? 1 : 0);
      std::int64_t scales = 0;
      for (std::int64_t begin = 0; begin < own; begin += 128) ++scales;
      return 4 * scales + (bits == 8 ? own : own / 2 + own % 2);
    };
    std::int64_t gathered = 0;
    std::int64_t reduced = 0;
    for (int rank = 0; rank < all; ++rank) {
      for (int other = 0; other < all; ++other) {
        if (other != rank) gathered += bytes(other, 8);
        const bool near = other != rank && other / inside == rank / inside;
        for (int group = 0; near && group < groups; ++group) reduced += bytes(group * inside + rank % inside, 4);
        if (other != rank && other % inside == rank % inside) reduced += bytes(rank, 4);
      }
    }
    Layout layout;
    layout.data = zero3(all);
    layout.data.quantized_weights = true;
    layout.data.quantized_gradients = inside;
    CHECK(all * received_in_gather(layout, ElementType::bf16, {2 * elements}) ==
          Approx(static_cast<double>(gathered)).epsilon(1e-12));
    CHECK(all * received_in_reduction(layout, ElementType::fp32, {4 * elements}) ==
          Approx(static_cast<double>(reduced)).epsilon(1e-12));
  }
}

// Costs count bytes; placements derive the moves. HSDP's sums over its copies are beside both: 2(R-1)/R of the own
// part.
TEST_CASE("received bytes of the costs equal those of the weights' collectives") {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp, Sharding::hsdp}) {
    for (const int degree : {2, 4, 6, 16}) {
      for (const bool reshards : {false, true}) {
        Layout layout;
        layout.data = {.degree = degree, .sharding = sharding};
        const bool shares_weights = sharding != Sharding::zero1 && sharding != Sharding::zero2;
        if (reshards && !shares_weights) continue;
        layout.data.reshard_after_forward = reshards;
        if (sharding == Sharding::hsdp) {
          layout.data.shard = degree / 2;
          layout.data.replicate = 2;
        }
        INFO(describe(layout) << ", reshard_after_forward " << reshards);
        const std::int64_t elements = std::int64_t{degree} * 120;
        const Mesh mesh = mesh_of(layout);
        const WeightMoves moves = weight_moves(mesh, weight_rule(mesh, layout.data), elements);
        // Weights that are not gathered for use come whole behind the update.
        const std::vector<Move>& gather = shares_weights ? moves.gather : moves.publish;
        CHECK(received_in_gather(layout, ElementType::bf16, {2 * elements}) ==
              Approx(2 * received_elements(mesh, gather)));
        if (shares_weights && reshards) {
          CHECK(received_in_second_gather(layout, ElementType::bf16, {2 * elements}) ==
                Approx(2 * received_elements(mesh, moves.again)));
        }
        const int copies = sharding == Sharding::hsdp ? layout.data.replicate : 1;
        const double over_copies = 2.0 * (copies - 1) / copies * static_cast<double>(elements * copies / degree);
        CHECK(received_in_reduction(layout, ElementType::fp32, {4 * elements}) + 4 * over_copies ==
              Approx(4 * received_elements(mesh, moves.reduce)));
      }
    }
  }
}
