#include "exec/transport/collectives/collectives.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

Clock::time_point soon() { return in_seconds(600); }

// Elements of part i of `parts`, by the rule of equal_parts written out anew.
std::vector<std::size_t> even_counts(std::size_t count, std::size_t parts) {
  std::vector<std::size_t> counts(parts);
  for (std::size_t element = 0; element < count; ++element) ++counts[element % parts];
  return counts;
}

// How many elements rank `from` gives to rank `to`: also none.
std::size_t given(std::size_t from, std::size_t to) { return (from * 5 + to * 3) % 7; }

struct Exchange {
  std::vector<std::size_t> give;  // elements by peer
  std::vector<std::size_t> take;
};
Exchange exchange_of(std::size_t rank, std::size_t ranks, bool reversed) {
  Exchange exchange;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    exchange.give.push_back(reversed ? given(peer, rank) : given(rank, peer));
    exchange.take.push_back(reversed ? given(rank, peer) : given(peer, rank));
  }
  return exchange;
}
std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

using ByRank = std::vector<std::vector<double>>;

double product(const ByRank& a, const ByRank& b) {
  double sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    sum += std::inner_product(a[rank].begin(), a[rank].end(), b[rank].begin(), 0.0);
  }
  return sum;
}

// Runs `map` on every rank: from its values to its result.
using Map = std::function<std::vector<double>(Collectives&, std::size_t rank, std::vector<double> values)>;
ByRank mapped(const std::vector<std::unique_ptr<Transport>>& transports, const Map& map, const ByRank& values) {
  ByRank results(values.size());
  on_ranks(transports,
           [&](Collectives& collectives, std::size_t rank) { results[rank] = map(collectives, rank, values[rank]); });
  return results;
}

}  // namespace

// The last rank comes when all others have gone on with something: they would wait for good if they did nothing else.
TEST_CASE("a rank that waits in a collective goes on with what it was given, and no longer than that is there") {
  const WorldKind world = each_world();
  if (world.ranks < 2) return;
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  std::atomic<int> going_on = 0;
  std::atomic<int> behind = 0;
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    std::vector<float> values(3, 1);
    bool counted = false;
    const auto sum = [&] {
      collectives.all_reduce(group, std::as_writable_bytes(std::span(values)), ElementType::fp32, soon());
    };
    {
      const Meanwhile meanwhile(*transports[rank], [&] { going_on += std::exchange(counted, true) ? 0 : 1; });
      const bool last = static_cast<int>(rank) + 1 == world.ranks;
      const Clock::time_point give_up = soon();
      while (last && going_on + 1 < world.ranks && Clock::now() < give_up) std::this_thread::yield();
      sum();
    }
    counted = false;
    sum();
    behind += counted ? 1 : 0;
  });
  CHECK(going_on >= world.ranks - 1);
  CHECK(behind == 0);
}

TEST_CASE("sums are those of neighbours, then of their sums, bit for bit, on every rank") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  for (const std::size_t count : element_counts()) {
    const auto values = random_values<float>(world.ranks, count, static_cast<unsigned>(count));
    const std::vector<float> expected = pairwise_sum(values);
    auto everywhere = values;
    auto at_root = values;
    std::vector<float> parts(count);
    on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
      collectives.all_reduce(group, bytes(everywhere[rank]), ElementType::fp32, soon());
      collectives.reduce(group, world.ranks - 1, bytes(at_root[rank]), ElementType::fp32, soon());
      const auto give = equal_parts(const_bytes(values[rank]), ranks, sizeof(float));
      const auto sum = equal_parts(bytes(parts), ranks, sizeof(float))[rank];
      collectives.reduce_scatter(group, give, sum, ElementType::fp32, soon());
    });
    INFO(world.kind.name << ", " << ranks << " ranks, " << count << " elements");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(everywhere[rank] == expected);
      CHECK(at_root[rank] == (rank + 1 == ranks ? expected : values[rank]));
    }
    CHECK(parts == expected);
  }
}

TEST_CASE("bf16 and fp64 are added in the same pairs") {
  const WorldKind world = each_world();
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  const auto wide = random_values<double>(world.ranks, 101, 5);
  // The first rank has 1, each other half a step of bf16 from there, 2⁻⁸: fp32 holds the sum, which is rounded once.
  const int half_steps = world.ranks - 1;
  const int below = half_steps / 2;
  const int steps = half_steps % 2 == 0 || below % 2 == 0 ? below : below + 1;  // half way: to even
  const std::vector<std::uint16_t> narrow_sum(7, static_cast<std::uint16_t>(0x3f80 + steps));
  auto sums = wide;
  std::vector<std::vector<std::uint16_t>> narrow(static_cast<std::size_t>(world.ranks));
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    narrow[rank].assign(7, rank == 0 ? 0x3f80 : 0x3b80);
    collectives.all_reduce(group, bytes(sums[rank]), ElementType::fp64, soon());
    collectives.all_reduce(group, bytes(narrow[rank]), ElementType::bf16, soon());
  });
  const std::vector<double> expected = pairwise_sum(wide);
  for (std::size_t rank = 0; rank < wide.size(); ++rank) {
    CHECK(sums[rank] == expected);
    CHECK(narrow[rank] == narrow_sum);
  }
}

TEST_CASE("gathered, broadcast and exchanged values arrive where they belong") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  std::atomic<int> wrong = 0;
  for (const std::size_t count : element_counts()) {
    const auto whole = random_values<float>(1, count, 6).front();
    const auto mine = random_values<float>(world.ranks, count * ranks, 7);
    on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
      std::vector<float> gathered(count);
      const auto parts = equal_parts(bytes(gathered), ranks, sizeof(float));
      std::ranges::copy(equal_parts(const_bytes(whole), ranks, sizeof(float))[rank], parts[rank].begin());
      collectives.all_gather(group, parts, soon());
      if (gathered != whole) ++wrong;

      for (std::size_t root = 0; root < ranks; ++root) {
        std::vector<float> told = rank == root ? mine[root] : std::vector<float>(count * ranks, 9.0F);
        collectives.broadcast(group, static_cast<int>(root), bytes(told), soon());
        if (told != mine[root]) ++wrong;
      }

      // Equal parts, also in place.
      std::vector<float> taken(count * ranks);
      std::vector<float> in_place = mine[rank];
      collectives.all_to_all(group, const_bytes(mine[rank]), bytes(taken), soon());
      collectives.all_to_all(group, const_bytes(in_place), bytes(in_place), soon());
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        for (std::size_t i = 0; i < count; ++i) {
          if (taken[peer * count + i] != mine[peer][rank * count + i]) ++wrong;
        }
      }
      if (in_place != taken) ++wrong;
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("every collective is the adjoint of its mirror") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  constexpr std::size_t width = sizeof(double);  // of whole numbers: both sides are exact, and equal

  const Map all_gather = [&](Collectives& collectives, std::size_t rank, std::vector<double> values) {
    std::vector<std::size_t> counts;
    for (std::size_t peer = 0; peer < ranks; ++peer) counts.push_back(given(peer, 1));
    std::vector<double> all(total(counts));
    const auto parts = cut(bytes(all), counts, width);
    std::ranges::copy(const_bytes(values), parts[rank].begin());
    collectives.all_gather(group, parts, soon());
    return all;
  };
  const Map reduce_scatter = [&](Collectives& collectives, std::size_t rank, std::vector<double> values) {
    std::vector<std::size_t> counts;
    for (std::size_t peer = 0; peer < ranks; ++peer) counts.push_back(given(peer, 1));
    std::vector<double> sum(counts[rank]);
    collectives.reduce_scatter(group, cut(const_bytes(values), counts, width), bytes(sum), ElementType::fp64, soon());
    return sum;
  };
  const Map all_reduce = [&](Collectives& collectives, std::size_t /*rank*/, std::vector<double> values) {
    collectives.all_reduce(group, bytes(values), ElementType::fp64, soon());
    return values;
  };
  const int root = world.ranks / 2;
  // What is not the root's counts for nothing before a broadcast, and is nothing after a reduction.
  const Map broadcast = [&](Collectives& collectives, std::size_t /*rank*/, std::vector<double> values) {
    collectives.broadcast(group, root, bytes(values), soon());
    return values;
  };
  const Map reduce = [&](Collectives& collectives, std::size_t rank, std::vector<double> values) {
    collectives.reduce(group, root, bytes(values), ElementType::fp64, soon());
    if (static_cast<int>(rank) != root) std::ranges::fill(values, 0.0);
    return values;
  };
  const auto exchange = [&](bool reversed) -> Map {
    return [&, reversed](Collectives& collectives, std::size_t rank, std::vector<double> values) {
      const Exchange counts = exchange_of(rank, ranks, reversed);
      std::vector<double> taken(total(counts.take));
      collectives.all_to_all(group, cut(const_bytes(values), counts.give, width), cut(bytes(taken), counts.take, width),
                             soon());
      return taken;
    };
  };
  const auto sized = [&](unsigned seed, const std::function<std::size_t(std::size_t)>& count) {
    ByRank values = whole_numbers(world.ranks, 200, seed);
    for (std::size_t rank = 0; rank < ranks; ++rank) values[rank].resize(count(rank));
    return values;
  };
  // ⟨Fx, y⟩ = ⟨x, F*y⟩.
  const auto require_adjoint = [&](const char* what, const Map& f, const Map& mirror, const ByRank& x,
                                   const ByRank& y) {
    INFO(what << " on " << world.kind.name << " with " << ranks << " ranks");
    const ByRank fx = mapped(transports, f, x);
    REQUIRE(product(fx, fx) > 0);
    CHECK(product(fx, y) == product(x, mapped(transports, mirror, y)));
  };

  const auto part = [&](std::size_t rank) { return given(rank, 1); };
  const auto whole = [&](std::size_t) {
    std::size_t all = 0;
    for (std::size_t peer = 0; peer < ranks; ++peer) all += given(peer, 1);
    return all;
  };
  require_adjoint("all-gather", all_gather, reduce_scatter, sized(1, part), sized(2, whole));
  require_adjoint("reduce-scatter", reduce_scatter, all_gather, sized(3, whole), sized(4, part));
  const auto same = [](std::size_t) { return std::size_t{31}; };
  require_adjoint("all-reduce", all_reduce, all_reduce, sized(5, same), sized(6, same));
  require_adjoint("broadcast", broadcast, reduce, sized(7, same), sized(8, same));
  require_adjoint("reduce", reduce, broadcast, sized(9, same), sized(10, same));
  const auto gives = [&](bool reversed) {
    return [&, reversed](std::size_t rank) { return total(exchange_of(rank, ranks, reversed).give); };
  };
  if (world.ranks > 1) {  // alone a rank gives itself nothing here
    require_adjoint("all-to-all", exchange(false), exchange(true), sized(11, gives(false)), sized(12, gives(true)));
  }
}

TEST_CASE("sums of large buffers, which are added block by block, are the same bits and the closed form's bytes") {
  const WorldKind world = each_world();
  if (world.ranks > 4) return;
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  // Of 512 KiB a part: one block at the most, one element more, several blocks and a rest that no size divides.
  const std::size_t alone = 2 * (512 << 10) / sizeof(float) * ranks;
  for (const std::size_t count : {alone, alone + 1, 3 * alone + 7}) {
    const auto transports = world.kind.make(world.ranks);  // which counts all that it brings
    const auto values = random_values<float>(world.ranks, count, 9);
    const std::vector<float> expected = pairwise_sum(values);
    auto sums = values;
    std::vector<std::int64_t> counted(ranks);
    on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
      collectives.all_reduce(group, bytes(sums[rank]), ElementType::fp32, soon());
      counted[rank] = collectives.received().at(group).value;
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(sums[rank] == expected);
      const std::size_t own = even_counts(count, ranks)[rank];
      CHECK(counted[rank] == static_cast<std::int64_t>((count - own + (ranks - 1) * own) * sizeof(float)));
    }
  }
}

TEST_CASE("bits do not depend on how a buffer is cut into buckets or shards") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  const auto transports = world.kind.make(world.ranks);
  const std::size_t count = 1009;
  const auto values = random_values<float>(world.ranks, count, 8);
  auto whole = values;
  auto pieces = values;
  std::vector<float> shards(count);
  // Shards of very unequal sizes: the last one has nearly all.
  std::vector<std::size_t> sizes(ranks, 3);
  sizes.back() = count - 3 * (ranks - 1);
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    collectives.all_reduce(group, bytes(whole[rank]), ElementType::fp32, soon());
    for (const auto& bucket : cut(bytes(pieces[rank]), {1, 500, 0, 7, 501}, sizeof(float))) {
      collectives.all_reduce(group, bucket, ElementType::fp32, soon());
    }
    collectives.reduce_scatter(group, cut(const_bytes(values[rank]), sizes, sizeof(float)),
                               cut(bytes(shards), sizes, sizeof(float))[rank], ElementType::fp32, soon());
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(pieces[rank] == whole[rank]);
  CHECK(shards == whole.front());
}

TEST_CASE("counted bytes equal the closed forms, by rank and by group") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  const std::vector<int> group = all_ranks(world.ranks);
  const std::size_t count =
      GENERATE(std::size_t{0}, std::size_t{13}, std::size_t{4800});  // 4800: every size divides it
  const std::size_t n = count * sizeof(float);
  const auto transports = world.kind.make(world.ranks);
  std::vector<std::vector<std::int64_t>> counted(ranks);
  std::vector<std::int64_t> by_transport(ranks);
  on_ranks(transports, [&](Collectives& collectives, std::size_t rank) {
    std::vector<float> values(count);
    std::vector<float> sum(even_counts(count, ranks)[rank]);
    auto note = [&, before = std::int64_t{0}]() mutable {
      const std::int64_t now = collectives.received().at(group).value;
      counted[rank].push_back(now - before);
      before = now;
    };
    const auto parts = equal_parts(bytes(values), ranks, sizeof(float));
    collectives.all_gather(group, parts, soon());
    note();
    collectives.reduce_scatter(group, equal_parts(const_bytes(values), ranks, sizeof(float)), bytes(sum),
                               ElementType::fp32, soon());
    note();
    collectives.all_reduce(group, bytes(values), ElementType::fp32, soon());
    note();
    collectives.broadcast(group, 0, bytes(values), soon());
    note();
    collectives.reduce(group, 0, bytes(values), ElementType::fp32, soon());
    note();
    std::vector<float> local(count * ranks);
    collectives.all_to_all(group, const_bytes(local), bytes(local), soon());
    note();
    const Exchange exchange = exchange_of(rank, ranks, false);
    std::vector<float> give(total(exchange.give));
    std::vector<float> take(total(exchange.take));
    collectives.all_to_all(group, cut(const_bytes(give), exchange.give, sizeof(float)),
                           cut(bytes(take), exchange.take, sizeof(float)), soon());
    note();
    by_transport[rank] = collectives.received().at(group).value;
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t own = even_counts(count, ranks)[rank] * sizeof(float);
    const std::size_t others = ranks - 1;
    const std::size_t exchanged = (total(exchange_of(rank, ranks, false).take) - given(rank, rank)) * sizeof(float);
    std::vector<std::size_t> expected{
        n - own,    others * own, n - own + others * own, rank == 0 ? 0 : n, rank == 0 ? others * n : 0,
        others * n, exchanged};
    if (count % ranks == 0) {
      expected[0] = others * n / ranks;
      expected[1] = others * n / ranks;
      expected[2] = 2 * others * n / ranks;
    }
    CHECK(counted[rank] == std::vector<std::int64_t>(expected.begin(), expected.end()));
    CHECK(transports[rank]->received_bytes().value == by_transport[rank]);
  }
}
