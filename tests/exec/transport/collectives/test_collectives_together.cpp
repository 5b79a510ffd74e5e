// Several groups at once, memory that the caller changes at once, and calls that cannot end well.
#include <atomic>
#include <functional>
#include <thread>

#include "common/base/error.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

TransportKind each_kind() { return transport_kinds()[GENERATE(range(std::size_t{0}, transport_kinds().size()))]; }

// A collective over `group` in which this rank has `elements` floats: of each part, where there are parts.
struct Kind {
  const char* name;
  std::function<void(Collectives&, std::span<const int> group, std::size_t elements, Clock::time_point deadline)> call;
};

std::vector<Kind> every_collective() {
  using Ranks = std::span<const int>;
  constexpr ElementType fp32 = ElementType::fp32;
  return {
      {"all-reduce",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         std::vector<float> values(elements, 1);
         of.all_reduce(group, bytes(values), fp32, deadline);
       }},
      {"all-gather",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         std::vector<float> values(elements * group.size(), 1);
         of.all_gather(group, equal_parts(bytes(values), group.size(), sizeof(float)), deadline);
       }},
      {"reduce-scatter",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         const std::vector<float> values(elements * group.size(), 1);
         std::vector<float> sum(elements);
         of.reduce_scatter(group, equal_parts(const_bytes(values), group.size(), sizeof(float)), bytes(sum), fp32,
                           deadline);
       }},
      {"broadcast",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         std::vector<float> values(elements, 1);
         of.broadcast(group, group.front(), bytes(values), deadline);
       }},
      {"reduce",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         std::vector<float> values(elements, 1);
         of.reduce(group, group.front(), bytes(values), fp32, deadline);
       }},
      {"all-to-all",
       [](Collectives& of, Ranks group, std::size_t elements, Clock::time_point deadline) {
         std::vector<float> values(elements * group.size(), 1);
         of.all_to_all(group, const_bytes(values), bytes(values), deadline);
       }},
  };
}

// A transport each time: after an error a run is over.
std::string error_of(const TransportKind& kind, int ranks, const std::function<void(Collectives&, int rank)>& body) {
  try {
    run_on_threads(kind.make(ranks), [&](Transport& transport) {
      Collectives collectives(transport);
      body(collectives, transport.rank());
    });
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("groups work at once, and a rank of several groups in turn") {
  const TransportKind kind = each_kind();
  const int rounds = 20;
  const auto values = random_values<float>(4, 257, 11);
  auto rows = values;     // {0, 1} and {2, 3}
  auto columns = values;  // {0, 2} and {1, 3}
  auto odd = values;      // {0, 2, 3}, while rank 1 is alone
  const auto transports = kind.make(4);
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    const int self = static_cast<int>(rank);
    const std::vector<int> row = self < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const std::vector<int> column = self % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    const std::vector<int> others = self == 1 ? std::vector<int>{1} : std::vector<int>{0, 2, 3};
    for (int round = 0; round < rounds; ++round) {
      for (auto* sums : {&rows, &columns, &odd}) (*sums)[rank] = values[rank];
      collectives.all_reduce(row, bytes(rows[rank]), ElementType::fp32, in_seconds(600));
      collectives.all_reduce(column, bytes(columns[rank]), ElementType::fp32, in_seconds(600));
      collectives.all_reduce(others, bytes(odd[rank]), ElementType::fp32, in_seconds(600));
    }
    if (collectives.received().size() != 3) throw RunError("", "bytes are counted for each of the groups");
  });
  for (std::size_t i = 0; i < 257; ++i) {
    REQUIRE(rows[0][i] == values[0][i] + values[1][i]);
    REQUIRE(rows[3][i] == values[2][i] + values[3][i]);
    REQUIRE(columns[0][i] == values[0][i] + values[2][i]);
    REQUIRE(columns[3][i] == values[1][i] + values[3][i]);
    REQUIRE(odd[3][i] == (values[0][i] + values[2][i]) + values[3][i]);
    REQUIRE(odd[1][i] == values[1][i]);
  }
}

TEST_CASE("a group need not have come to its collective for another to go through") {
  const auto transports = each_kind().make(4);
  std::atomic<bool> second_done = false;
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    std::vector<float> values(1000, 1);
    if (rank < 2) {
      while (rank == 0 && !second_done) std::this_thread::yield();  // rank 1 waits in the collective meanwhile
      collectives.all_reduce(std::vector<int>{0, 1}, bytes(values), ElementType::fp32, in_seconds(600));
    } else {
      collectives.all_reduce(std::vector<int>{2, 3}, bytes(values), ElementType::fp32, in_seconds(600));
      second_done = true;
    }
  });
  CHECK(second_done);
}

TEST_CASE("memory is the caller's again when a call returns, though a peer has not come yet") {
  const TransportKind kind = each_kind();
  const std::size_t count = 20000;
  std::atomic<int> wrong = 0;
  on_ranks(kind.make(3), [&](Collectives& collectives, std::size_t rank) {
    const std::vector<int> group{0, 1, 2};
    const auto late = [&] {
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    };
    for (int round = 0; round < 3; ++round) {
      // Freed as soon as it is given: rank 2 reads it later.
      late();
      std::vector<float> told(count, rank == 0 ? 5.0F : 0.0F);
      collectives.broadcast(group, 0, bytes(told), in_seconds(600));
      if (told != std::vector<float>(count, 5)) ++wrong;
      std::ranges::fill(told, -1.0F);
      late();
      std::vector<float> part(count, static_cast<float>(rank + 1));
      collectives.reduce(group, 2, bytes(part), ElementType::fp32, in_seconds(600));
      if (rank == 2 && part != std::vector<float>(count, 6)) ++wrong;
      std::ranges::fill(part, -1.0F);
      // Gradients are zeroed at once; the ring's last part may still be on its way to the next rank.
      std::vector<float> sum(count, static_cast<float>(rank + 1));
      collectives.all_reduce(group, bytes(sum), ElementType::fp32, in_seconds(600));
      if (sum != std::vector<float>(count, 6)) ++wrong;
      std::ranges::fill(sum, 0.0F);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a rank that does not come ends a collective at its deadline, with its name, group, peer and bytes") {
  const TransportKind kind = each_kind();
  for (const Kind& collective : every_collective()) {
    // Rank 1 stays away: from it comes what a reduction's root waits for, and also what a broadcast's others do.
    const bool broadcast = std::string(collective.name) == "broadcast";
    const std::vector<int> group = broadcast ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2};
    const int waiting = broadcast ? 2 : 0;
    const std::string error = error_of(kind, 3, [&](Collectives& collectives, int rank) {
      if (rank == waiting) collective.call(collectives, group, 6, in_seconds(0.2));
    });
    INFO(kind.name << ": " << error);
    CHECK_THAT(error, ContainsSubstring("rank " + std::to_string(waiting) + ": " + collective.name + " over ranks "));
    CHECK_THAT(error,
               ContainsSubstring("over ranks " + std::string(broadcast ? "1, 2" : "0, 1, 2") + ", waiting for "));
    CHECK_THAT(error, ContainsSubstring(" bytes from rank "));
    CHECK_THAT(error, ContainsSubstring("on the collective channel") && ContainsSubstring("before the deadline"));
  }
}

TEST_CASE("sizes that differ between ranks are an error that names both, long before the deadline") {
  const TransportKind kind = each_kind();
  for (const Kind& collective : every_collective()) {
    for (const std::size_t other : {std::size_t{0}, std::size_t{4}, std::size_t{6}}) {
      const std::string error = error_of(kind, 2, [&](Collectives& collectives, int rank) {
        collective.call(collectives, std::vector<int>{0, 1}, rank == 0 ? other : 5, in_seconds(3600));
        collectives.all_reduce(std::vector<int>{0, 1}, {}, ElementType::fp32, in_seconds(3600));
      });
      INFO(kind.name << ", " << collective.name << ": " << error);
      // An all-reduce states its parts, 3 and 2 of 5 elements; of none against them, whichever rank sees it first.
      const bool parts = std::string(collective.name) == "all-reduce";
      const auto ours =
          parts ? (other == 6 ? ContainsSubstring("8") : ContainsSubstring("12")) : ContainsSubstring("20");
      const auto theirs = std::to_string(sizeof(float) * (parts ? (other + 1) / 2 : other));
      if (parts && other == 0) {
        CHECK_THAT(error, ContainsSubstring("12") || ContainsSubstring("8"));
        CHECK_THAT(error,
                   ContainsSubstring("0 bytes") || ContainsSubstring("expects 0") || ContainsSubstring("sent 0"));
      } else {
        CHECK_THAT(error, ours && ContainsSubstring(theirs));
      }
      CHECK_THAT(error, ContainsSubstring("on the collective channel"));
      CHECK_THAT(error, !ContainsSubstring("deadline"));
    }
  }
}

TEST_CASE("a rank that waits in a collective stops when another says so, with its reason") {
  for (const Kind& collective : every_collective()) {
    const bool broadcast = std::string(collective.name) == "broadcast";
    const std::string error = error_of(each_kind(), 2, [&](Collectives& collectives, int rank) {
      if (rank == (broadcast ? 1 : 0)) collective.call(collectives, std::vector<int>{0, 1}, 4, in_seconds(600));
      if (rank == (broadcast ? 0 : 1)) throw RunError("", "has had enough");
    });
    CHECK(error == "has had enough");
  }
}

TEST_CASE("an impossible collective is refused before anything is sent, naming collective and group") {
  const auto transports = each_kind().make(2);
  Collectives collectives(*transports[0]);
  const std::vector<int> group{0, 1};
  std::vector<float> values(5);
  std::vector<float> sum(3);
  const auto deadline = in_seconds(600);
  const auto says = [](const std::function<void()>& call, const std::string& problem) {
    CHECK_THROWS_WITH(call(), ContainsSubstring("rank 0: ") && ContainsSubstring(problem));
  };
  const auto parts = equal_parts(const_bytes(values), 2, sizeof(float));
  const auto memory = equal_parts(bytes(values), 2, sizeof(float));
  says([&] { collectives.all_reduce(group, bytes(values), ElementType::int64, deadline); },
       "all-reduce over ranks 0, 1: no sums of int64");
  says([&] { collectives.all_reduce(group, bytes(values).first(6), ElementType::fp32, deadline); },
       "no whole elements");
  says(
      [&] {
        collectives.all_reduce(std::vector<int>{1, 0}, bytes(values), ElementType::fp32, deadline);
      },
      "must be ascending");
  says(
      [&] {
        collectives.all_reduce(std::vector<int>{0, 0, 1}, bytes(values), ElementType::fp32, deadline);
      },
      "must be ascending");
  says([&] { collectives.all_reduce(std::vector<int>{1}, bytes(values), ElementType::fp32, deadline); },
       "hold this rank");
  says([&] { collectives.all_gather(std::vector<int>{0, 7}, memory, deadline); }, "has no peer 7");
  says([&] { collectives.all_gather(group, std::span(memory).first(1), deadline); }, "1 parts for 2 ranks");
  says([&] { collectives.reduce_scatter(group, parts, bytes(sum).first(8), ElementType::fp32, deadline); },
       "a sum of 8 bytes for a part of 12");
  says([&] { collectives.broadcast(group, 2, bytes(values), deadline); },
       "broadcast over ranks 0, 1: rank 2 is not in");
  says([&] { collectives.all_to_all(group, parts, equal_parts(bytes(sum), 2, sizeof(float)), deadline); },
       "gives itself 12 bytes and takes 8");
  says([&] { collectives.all_to_all(group, const_bytes(sum), bytes(sum).first(3), deadline); }, "no equal parts");
  CHECK(collectives.received().empty());
}
