#include "exec/transport/collectives/panels.hpp"

#include <chrono>
#include <deque>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

// The next one is under way before the one before is taken, as panels have it.
TEST_CASE("blocks that each rank gives in turn come to all others, and bring the bytes of an all-gather") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const auto ranks = static_cast<std::size_t>(world.ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{100'000}}) {
    const auto values = random_values<float>(world.ranks, count, 7);
    std::vector<std::vector<std::vector<float>>> come(ranks);
    std::vector<Bytes> received(ranks);
    run_on_threads(world.kind.make(world.ranks), [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      std::vector<float> own = values[rank];
      std::deque<BlockFromRoot> blocks;
      for (std::size_t root = 0; root <= ranks; ++root) {
        if (root < ranks) blocks.emplace_back(transport, all_ranks(world.ranks), root, const_bytes(own));
        if (root == rank) own.assign(count, -1);  // what is sent is a copy
        if (root == 0) continue;
        come[rank].push_back(blocks.front().is_root() ? values[rank]
                                                      : floats_of(blocks.front().receive(in_seconds(600))));
        blocks.pop_front();
      }
      if (ranks > 1) received[rank] = transport.received_in_groups().at(all_ranks(world.ranks));
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(come[rank] == values);
      CHECK(received[rank].value == static_cast<std::int64_t>((ranks - 1) * count * sizeof(float)));
    }
  }
}

TEST_CASE("sums at each rank in turn have the bits of sums of neighbours, and bring the bytes of a reduce-scatter") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const auto ranks = static_cast<std::size_t>(world.ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{100'000}}) {
    std::vector<std::vector<std::vector<float>>> parts(ranks);  // by root, then by rank
    for (std::size_t root = 0; root < ranks; ++root) {
      parts[root] = random_values<float>(world.ranks, count, static_cast<unsigned>(root) + 3);
    }
    std::vector<std::vector<float>> sums(ranks);
    std::vector<Bytes> received(ranks);
    run_on_threads(world.kind.make(world.ranks), [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      std::deque<SumAtRoot> under_way;
      for (std::size_t root = 0; root <= ranks; ++root) {
        if (root < ranks)
          under_way.emplace_back(transport, all_ranks(world.ranks), root, const_bytes(parts[root][rank]));
        if (root == 0) continue;
        if (under_way.front().is_root()) {
          sums[rank] = parts[rank][rank];
          under_way.front().finish(bytes(sums[rank]), ElementType::fp32, in_seconds(600));
        }
        under_way.pop_front();
      }
      if (ranks > 1) received[rank] = transport.received_in_groups().at(all_ranks(world.ranks));
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(sums[rank] == pairwise_sum(parts[rank]));
      CHECK(received[rank].value == static_cast<std::int64_t>((ranks - 1) * count * sizeof(float)));
    }
  }
}

TEST_CASE(
    "a block that nobody sends is told, a root that takes its own, and a sum at another rank or of another size") {
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
               BlockFromRoot block(transport, both, 1, const_bytes(part));
               (void)block.receive(in_seconds(0.01));
             }),
             ContainsSubstring("broadcast of a panel over ranks 0, 1, waiting for 16 bytes from rank 1"));
  CHECK_THAT(failure([&](Transport& transport) {
               BlockFromRoot block(transport, both, 0, const_bytes(part));
               (void)block.receive(in_seconds(600));
             }),
             ContainsSubstring("the root receives its own block"));
  CHECK_THAT(failure([&](Transport& transport) {
               SumAtRoot sum(transport, both, 1, const_bytes(part));
               sum.finish(bytes(part), ElementType::fp32, in_seconds(600));
             }),
             ContainsSubstring("sum of a panel over ranks 0, 1: rank 1 adds up, and not this one"));
  CHECK_THAT(failure([&](Transport& transport) {
               SumAtRoot sum(transport, both, 0, const_bytes(part).first(12));
               sum.finish(bytes(part), ElementType::fp32, in_seconds(600));
             }),
             ContainsSubstring("a part of 16 bytes, not 12"));
}
