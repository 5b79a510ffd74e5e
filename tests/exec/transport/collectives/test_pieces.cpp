#include "exec/transport/collectives/pieces.hpp"

#include <chrono>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

TEST_CASE("a gather in pieces brings each rank's part in the order of the ring, and the bytes of an all-gather") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const auto ranks = static_cast<std::size_t>(world.ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{100'000}}) {
    const auto values = random_values<float>(world.ranks, count, 7);
    std::vector<std::vector<std::vector<float>>> come(ranks);
    std::vector<Bytes> received(ranks);
    run_on_threads(world.kind.make(world.ranks), [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      for (int turn = 0; turn < 2; ++turn) {
        GatherInPieces gather(transport, all_ranks(world.ranks), const_bytes(values[rank]));
        for (std::size_t piece = 1; piece < ranks; ++piece)
          come[rank].push_back(floats_of(gather.next(in_seconds(600))));
      }
      if (ranks > 1) received[rank] = transport.received_in_groups().at(all_ranks(world.ranks));
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      REQUIRE(come[rank].size() == 2 * (ranks - 1));
      for (std::size_t distance = 1; distance < ranks; ++distance) {
        CHECK(come[rank][distance - 1] == values[(rank + ranks - distance) % ranks]);
        CHECK(come[rank][ranks - 1 + distance - 1] == values[(rank + ranks - distance) % ranks]);
      }
      CHECK(received[rank].value == static_cast<std::int64_t>(2 * (ranks - 1) * count * sizeof(float)));
    }
  }
}

TEST_CASE("a scatter in pieces has the bits of sums of neighbours, in whatever order its parts are given") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const auto ranks = static_cast<std::size_t>(world.ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{100'000}}) {
    std::vector<std::vector<std::vector<float>>> parts(ranks);  // by part, then by rank
    for (std::size_t part = 0; part < ranks; ++part) {
      parts[part] = random_values<float>(world.ranks, count, static_cast<unsigned>(part) + 3);
    }
    std::vector<std::vector<float>> sums(ranks, std::vector<float>(count));
    std::vector<Bytes> received(ranks);
    run_on_threads(world.kind.make(world.ranks), [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      ScatterInPieces scatter(transport, all_ranks(world.ranks), count * sizeof(float));
      for (std::size_t distance = 1; distance < ranks; ++distance) {
        const std::size_t to = (rank + (rank % 2 == 0 ? distance : ranks - distance)) % ranks;
        scatter.give(to, const_bytes(parts[to][rank]));
      }
      scatter.finish(const_bytes(parts[rank][rank]), bytes(sums[rank]), ElementType::fp32, in_seconds(600));
      received[rank] = transport.received_in_groups().at(all_ranks(world.ranks));
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(sums[rank] == pairwise_sum(parts[rank]));
      CHECK(received[rank].value == static_cast<std::int64_t>((ranks - 1) * count * sizeof(float)));
    }
  }
}

TEST_CASE("a part that is not given, given twice, or of another size is told, and a rank that leaves the ring") {
  const auto failure = [](const auto& body) {
    std::string said;
    run_on_threads(transport_kinds().front().make(2), [&](Transport& transport) {
      if (transport.rank() != 0) return;
      try {
        body(transport);
      } catch (const RunError& error) {
        said = error.what();
      }
    });
    return said;
  };
  std::vector<float> part(4);
  const std::vector<int> both{0, 1};
  CHECK_THAT(failure([&](Transport& transport) {
               ScatterInPieces scatter(transport, both, 16);
               scatter.finish(const_bytes(part), bytes(part), ElementType::fp32, in_seconds(600));
             }),
             ContainsSubstring("reduce-scatter in pieces over ranks 0, 1") && ContainsSubstring("no part for rank 1"));
  CHECK_THAT(failure([&](Transport& transport) {
               ScatterInPieces scatter(transport, both, 16);
               scatter.give(1, const_bytes(part));
               scatter.give(1, const_bytes(part));
             }),
             ContainsSubstring("a second part for rank 1"));
  CHECK_THAT(failure([&](Transport& transport) {
               ScatterInPieces scatter(transport, both, 12);
               scatter.give(1, const_bytes(part));
             }),
             ContainsSubstring("a part of 16 bytes, not 12"));
  CHECK_THAT(failure([&](Transport& transport) {
               GatherInPieces gather(transport, both, const_bytes(part));
               (void)gather.next(in_seconds(0.01));
             }),
             ContainsSubstring("all-gather in pieces over ranks 0, 1, waiting for 16 bytes from rank 1"));
}
