#include "exec/transport/collectives/gathers_beside.hpp"

#include <chrono>
#include <thread>

#include "common/base/error.hpp"
#include "exec/transport/collectives/sums_beside.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

TEST_CASE("gathers beside sums of the same ranks bring all parts, and count the bytes of all-gathers") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  std::vector<std::vector<float>> whole;
  unsigned seed = 1;
  for (const std::size_t count : element_counts()) whole.push_back(random_values<float>(1, count, seed++).front());
  whole.push_back(random_values<float>(1, 100'000, seed).front());  // more than a link between hosts takes
  std::vector<std::vector<std::vector<float>>> gathered(ranks);
  std::vector<std::vector<float>> summed(ranks, std::vector<float>(1009, 1.0F));
  std::vector<Bytes> received(ranks);
  run_on_threads(world.kind.make(world.ranks), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    auto& mine = gathered[rank];
    for (const auto& values : whole) mine.emplace_back(values.size(), -1.0F);
    GathersBeside gathers(transport, group);
    SumsBeside sums(transport, group);
    sums.start(summed[rank]);
    for (std::size_t first = 0; first < whole.size(); first += 2) {  // two values a message, two messages under way
      std::vector<GathersBeside::PartList> parts;
      for (std::size_t value = first; value < std::min(first + 2, whole.size()); ++value) {
        parts.push_back(equal_parts(bytes(mine[value]), ranks, sizeof(float)));
        const auto own = equal_parts(const_bytes(whole[value]), ranks, sizeof(float))[rank];
        std::ranges::copy(own, parts.back()[rank].begin());
      }
      gathers.start(std::move(parts));
      if (first > 0) gathers.finish(in_seconds(600));
      sums.progress();
    }
    gathers.finish(in_seconds(600));
    if (!gathers.idle()) throw std::logic_error("not idle");
    const Bytes before =
        transport.received_in_groups().contains(group) ? transport.received_in_groups().at(group) : Bytes{};
    sums.finish(in_seconds(600));
    received[rank] = before;
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank);
    CHECK(gathered[rank] == whole);
    CHECK(summed[rank] == std::vector<float>(1009, static_cast<float>(ranks)));
    std::size_t others = 0;
    for (const auto& values : whole) others += values.size() - elements_of_part(values.size(), ranks, rank);
    // Some of the sum may have come by then, too: a part from each rank, and the parts' sums from these.
    const std::size_t sum =
        1009 - elements_of_part(1009, ranks, rank) + (ranks - 1) * elements_of_part(1009, ranks, rank);
    CHECK(received[rank].value >= static_cast<std::int64_t>(others * sizeof(float)));
    CHECK(received[rank].value <= static_cast<std::int64_t>((others + sum) * sizeof(float)));
  }
}

TEST_CASE("no rank waits for one that has started its gather and does something else") {
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    std::vector<int> values{0, 0};
    run_on_threads(kind.make(2), [&](Transport& transport) {
      std::vector<int> both{-1, -1};
      both[static_cast<std::size_t>(transport.rank())] = 7 + transport.rank();
      GathersBeside gathers(transport, {0, 1});
      gathers.start({equal_parts(bytes(both), 2, sizeof(int))});
      // Rank 1 looks at it only when rank 0 has it.
      if (transport.rank() == 1) transport.barrier(in_seconds(600));
      gathers.finish(in_seconds(600));
      if (transport.rank() == 0) transport.barrier(in_seconds(600));
      values[static_cast<std::size_t>(transport.rank())] = both[0] * 100 + both[1];
    });
    CHECK(values == std::vector<int>{708, 708});
  }
}

TEST_CASE("a rank that leaves out a gather, or has other parts, is named by those that wait for it") {
  for (const TransportKind& kind : transport_kinds()) {
    for (const bool left_out : {true, false}) {
      INFO(kind.name << (left_out ? ", left out" : ", other parts"));
      std::string problem;
      const auto transports = kind.make(2);
      std::thread other([&] {
        std::vector<float> values(10);
        GathersBeside gathers(*transports[1], {0, 1});
        try {
          if (!left_out) gathers.start({equal_parts(bytes(values), 2, sizeof(float))});
          (void)transports[1]->gather("", in_seconds(600));
        } catch (const RunError&) {
        }
      });
      std::vector<float> values(8);
      GathersBeside gathers(*transports[0], {0, 1});
      gathers.start({equal_parts(bytes(values), 2, sizeof(float))});
      try {
        gathers.finish(left_out ? Clock::now() + std::chrono::milliseconds(100) : in_seconds(600));
      } catch (const RunError& error) {
        problem = error.problem();
      }
      transports[0]->abort("the end");
      other.join();
      CHECK_THAT(problem, ContainsSubstring("all-gather over ranks 0, 1, waiting for rank 1"));
      CHECK_THAT(problem, ContainsSubstring(left_out ? "before the deadline" : "16"));
    }
  }
}
