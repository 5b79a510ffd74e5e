#include "exec/transport/collectives/sums_beside.hpp"

#include <chrono>
#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

struct Outcome {
  std::vector<std::vector<float>> sums;  // one after the other
  GroupBytes received;
  bool operator==(const Outcome&) const = default;
};

// values[i][rank]: of sum i.
using AllValues = std::vector<std::vector<std::vector<float>>>;

template <class Sum>
std::vector<Outcome> outcomes(const std::vector<std::unique_ptr<Transport>>& transports, AllValues values,
                              const Sum& sum) {
  std::vector<Outcome> by_rank(transports.size());
  run_on_threads(transports, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    std::vector<std::vector<float>> own;
    for (auto& of_sum : values) own.push_back(std::move(of_sum[rank]));
    sum(transport, own);
    by_rank[rank] = {.sums = std::move(own), .received = transport.received_in_groups()};
  });
  return by_rank;
}

}  // namespace

TEST_CASE("sums beside the rank's work have the bits and the bytes of all-reduces, whenever ranks look at them") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const std::vector<int> group = all_ranks(world.ranks);
  AllValues values;
  unsigned seed = 1;
  for (const std::size_t count : element_counts()) values.push_back(random_values<float>(world.ranks, count, seed++));
  values.push_back(random_values<float>(world.ranks, 100'000, seed));  // more than a link between hosts takes
  const auto expected =
      outcomes(world.kind.make(world.ranks), values, [&](Transport& transport, std::vector<std::vector<float>>& own) {
        for (auto& each : own) transport.all_reduce(group, each, in_seconds(600));
      });
  const auto beside =
      outcomes(world.kind.make(world.ranks), values, [&](Transport& transport, std::vector<std::vector<float>>& own) {
        std::minstd_rand random(static_cast<unsigned>(transport.rank() + 1));
        SumsBeside sums(transport, group);
        for (auto& each : own) {
          sums.start(each);
          const unsigned looks = random() % 4;
          for (unsigned look = 0; look < looks; ++look) sums.progress();
        }
        sums.finish(in_seconds(600));
        if (!sums.idle()) throw std::logic_error("not idle");
        // What follows finds the channels empty.
        std::vector<float> again(own.back().size(), 1);
        transport.all_reduce(group, again, in_seconds(600));
        if (again.front() != static_cast<float>(group.size())) throw std::logic_error("another sum");
      });
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(beside[rank].sums == expected[rank].sums);
    // Of the sum that followed: as much as the last one before.
    const Bytes last = values.back().front().size() * sizeof(float) * (group.size() - 1) * 2 / group.size() * Bytes{1};
    if (group.size() == 1 || values.back().front().size() % group.size() != 0) continue;
    CHECK(beside[rank].received.at(group) == expected[rank].received.at(group) + last);
  }
}

// As a reduce-scatter: the own part of an all-reduce's sum, and half of its bytes.
TEST_CASE("sums of which each rank gets its own part have the bits of that part") {
  const WorldKind world = each_world();
  INFO(world.kind.name << ", " << world.ranks << " ranks");
  const std::vector<int> group = all_ranks(world.ranks);
  AllValues values;
  unsigned seed = 20;
  for (const std::size_t count : element_counts()) values.push_back(random_values<float>(world.ranks, count, seed++));
  const auto whole =
      outcomes(world.kind.make(world.ranks), values, [&](Transport& transport, std::vector<std::vector<float>>& own) {
        for (auto& each : own) transport.all_reduce(group, each, in_seconds(600));
      });
  const auto parts =
      outcomes(world.kind.make(world.ranks), values, [&](Transport& transport, std::vector<std::vector<float>>& own) {
        SumsBeside sums(transport, group, SumsBeside::Gets::own_part);
        for (auto& each : own) sums.start(each);
        for (std::size_t count = 1; count <= own.size(); ++count) {  // one after the other, as far as each is needed
          sums.finish(count, in_seconds(600));
        }
        if (!sums.idle() || sums.started() != own.size()) throw std::logic_error("not idle");
      });
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    INFO("rank " << rank);
    std::size_t received = 0;
    for (std::size_t of = 0; of < values.size(); ++of) {
      const std::size_t elements = parts[rank].sums[of].size();
      const std::size_t first = begin_of_part(elements, group.size(), rank);
      const std::size_t count = elements_of_part(elements, group.size(), rank);
      received += count * sizeof(float) * (group.size() - 1);
      CHECK(std::equal(parts[rank].sums[of].begin() + static_cast<std::ptrdiff_t>(first),
                       parts[rank].sums[of].begin() + static_cast<std::ptrdiff_t>(first + count),
                       whole[rank].sums[of].begin() + static_cast<std::ptrdiff_t>(first)));
    }
    if (group.size() > 1) CHECK(parts[rank].received.at(group) == Bytes{static_cast<std::int64_t>(received)});
  }
}

TEST_CASE("a sum goes on to its end without a rank that waits, as long as all look at it") {
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    std::array<std::vector<float>, 3> values{std::vector<float>(30'000, 1), std::vector<float>(30'000, 2),
                                             std::vector<float>(30'000, 3)};
    run_on_threads(kind.make(3), [&](Transport& transport) {
      SumsBeside sums(transport, {0, 1, 2});
      sums.start(values[static_cast<std::size_t>(transport.rank())]);
      const Clock::time_point give_up = in_seconds(600);
      while (!sums.idle() && Clock::now() < give_up) {
        sums.progress();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      if (!sums.idle()) throw std::logic_error("not idle");
      transport.barrier(give_up);
    });
    for (const auto& of_rank : values) CHECK(of_rank == std::vector<float>(30'000, 6));
  }
}

TEST_CASE("a rank that does not start a sum is named by those that wait for it, and a stop ends their wait") {
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    std::string problem;
    bool stopped = false;
    const auto transports = kind.make(2);
    std::thread other([&] {
      try {
        (void)transports[1]->gather("", in_seconds(600));
      } catch (const exec::Stopped&) {
        stopped = true;
      }
    });
    std::vector<float> values(8, 1);
    SumsBeside sums(*transports[0], {0, 1});
    sums.start(values);
    try {
      sums.finish(Clock::now() + std::chrono::milliseconds(100));
    } catch (const RunError& error) {
      problem = error.problem();
    }
    transports[0]->abort("the end");
    other.join();
    CHECK_THAT(problem, ContainsSubstring("all-reduce over ranks 0, 1, waiting for rank 1"));
    CHECK_THAT(problem, ContainsSubstring("before the deadline"));
    CHECK(stopped);
    CHECK_THROWS_AS(sums.progress(), exec::Stopped);
  }
}
