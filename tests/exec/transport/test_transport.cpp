#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "common/base/error.hpp"
#include "exec/launch/launch.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

// Catch's assertions are not for several threads: ranks count what is wrong, the test looks at the count.
namespace {

const TransportKind& each_kind() {
  static const std::vector<TransportKind> kinds = transport_kinds();
  return kinds[GENERATE(range(std::size_t{0}, transport_kinds().size()))];
}

}  // namespace

TEST_CASE("every message of a ring arrives in order, with its bytes, on its own channel") {
  const TransportKind& kind = each_kind();
  const int ranks = GENERATE(2, 3, 8);
  const std::size_t bytes = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20U);
  const int messages = 5;
  std::atomic<int> wrong = 0;
  const auto transports = kind.make(ranks);
  run_on_threads(transports, [&](Transport& transport) {
    const int next = (transport.rank() + 1) % ranks;
    const int previous = (transport.rank() + ranks - 1) % ranks;
    for (const Channel channel : {Channel::forward, Channel::backward}) {
      transport.expect(previous, channel, bytes, messages);
    }
    for (int i = 0; i < messages; ++i) {
      transport.send(next, Channel::forward, pattern(transport.rank(), Channel::forward, i, bytes));
      transport.send(next, Channel::backward, pattern(transport.rank(), Channel::backward, i, bytes));
    }
    // The other channel first: it must not wait behind this one.
    for (const Channel channel : {Channel::backward, Channel::forward}) {
      for (int i = 0; i < messages; ++i) {
        const Received got = transport.receive(previous, channel, in_seconds(600));
        if (!same_bytes(got.payload, pattern(previous, channel, i, bytes))) ++wrong;
        if (got.arrived > Clock::now()) ++wrong;
      }
    }
    if (transport.received_bytes().value != static_cast<std::int64_t>(2 * messages * bytes)) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("messages of several sizes may be announced together, before any has come") {
  const TransportKind& kind = each_kind();
  const std::vector<std::size_t> sizes{64, 64, 4096, 0, 64, 1 << 20};
  std::atomic<int> wrong = 0;
  const auto transports = kind.make(2);
  run_on_threads(transports, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    for (const std::size_t bytes : sizes) transport.expect(peer, Channel::forward, bytes, 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      transport.send(peer, Channel::forward,
                     pattern(transport.rank(), Channel::forward, static_cast<int>(i), sizes[i]));
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Received got = transport.receive(peer, Channel::forward, in_seconds(600));
      if (!same_bytes(got.payload, pattern(peer, Channel::forward, static_cast<int>(i), sizes[i]))) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("parcels of any sizes arrive in order, both ways, and neither they nor messages wait for each other") {
  const TransportKind& kind = each_kind();
  const std::vector<std::vector<std::size_t>> sizes{{100, 0, 1 << 20, 3}, {}, {0}, {70000, 70000}};
  std::atomic<int> wrong = 0;
  const auto transports = kind.make(2);
  run_on_threads(transports, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    const auto parcel = [&](int sender, std::size_t number) {
      Parcel parts;
      for (const std::size_t bytes : sizes[number]) {
        parts.push_back(pattern(sender, Channel::forward, static_cast<int>(number + parts.size()), bytes));
      }
      return parts;
    };
    const auto message = [&](int sender) { return pattern(sender, Channel::backward, 9, 2 << 20); };
    transport.expect(peer, Channel::backward, 2 << 20, 2);
    // Sent before anyone expects them: a message behind them gets through.
    for (std::size_t i = 0; i < sizes.size(); ++i) transport.send_parcel(peer, parcel(transport.rank(), i));
    transport.send(peer, Channel::backward, message(transport.rank()));
    if (!same_bytes(transport.receive(peer, Channel::backward, in_seconds(600)).payload, message(peer))) ++wrong;
    if (transport.has_parcel(peer)) ++wrong;
    transport.barrier(in_seconds(600));
    // Parcels get through although a message is not taken.
    transport.send(peer, Channel::backward, message(transport.rank()));
    transport.expect_parcels(peer, 1);
    transport.expect_parcels(peer, static_cast<int>(sizes.size()) - 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (i == 1) {
        while (!transport.has_parcel(peer)) std::this_thread::yield();
      }
      const ReceivedParcel got = transport.receive_parcel(peer, in_seconds(600));
      const Parcel wanted = parcel(peer, i);
      if (!std::equal(got.parcel.begin(), got.parcel.end(), wanted.begin(), wanted.end(), same_bytes)) ++wrong;
      if (got.arrived > Clock::now()) ++wrong;
    }
    if (transport.has_parcel(peer)) ++wrong;
    (void)transport.receive(peer, Channel::backward, in_seconds(600));
    const std::int64_t bytes = (2 * (2 << 20)) + 100 + (1 << 20) + 3 + (2 * 70000);
    if (transport.received_bytes().value != bytes) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("a parcel that nobody sends ends at its deadline, or with the reason to stop") {
  const auto transports = each_kind().make(2);
  CHECK_THROWS_WITH(transports[1]->receive_parcel(0, in_seconds(600)), ContainsSubstring("expects no parcel"));
  transports[1]->expect_parcels(0, 1);
  CHECK_THROWS_WITH(transports[1]->receive_parcel(0, in_seconds(0.05)),
                    ContainsSubstring("no evicted activations from rank 0 before the deadline"));
  const auto rank_main = [&](Transport& transport) {
    if (transport.rank() == 1) {
      (void)transport.receive_parcel(0, in_seconds(600));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      transport.abort("rank 0 has had enough");
    }
  };
  CHECK_THROWS_WITH(run_on_threads(transports, rank_main), ContainsSubstring("rank 0 has had enough"));
  CHECK_THROWS_AS(transports[0]->send_parcel(1, {}), exec::Stopped);
  CHECK_THROWS_AS(transports[0]->has_parcel(1), exec::Stopped);
}

TEST_CASE("all ranks talk to all others at once") {
  const int ranks = 6;
  std::atomic<int> wrong = 0;
  const auto transports = each_kind().make(ranks);
  run_on_threads(transports, [&](Transport& transport) {
    for (int round = 0; round < 20; ++round) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == transport.rank()) continue;
        transport.expect(peer, Channel::forward, 64, 1);
        transport.send(peer, Channel::forward, pattern(transport.rank(), Channel::forward, round, 64));
      }
      for (int peer = ranks - 1; peer >= 0; --peer) {
        if (peer == transport.rank()) continue;
        const Received got = transport.receive(peer, Channel::forward, in_seconds(600));
        if (!same_bytes(got.payload, pattern(peer, Channel::forward, round, 64))) ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
}

// More than a socket takes; what goes by links of a host and what does not keep their order.
TEST_CASE("a rank never waits for one that does not receive yet, however much it sends, large and small") {
  const TransportKind& kind = each_kind();
  const auto transports = kind.make(2);
  constexpr int messages = 60;
  const auto bytes = [](int i) { return i % 7 == 3 ? std::size_t{100'000} : std::size_t{60'000}; };
  int wrong = 0;
  std::thread receiver([&] {
    for (int i = 0; i < messages; ++i) transports[1]->expect(0, Channel::forward, bytes(i), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int i = 0; i < messages; ++i) {
      const Received got = transports[1]->receive(0, Channel::forward, in_seconds(600));
      if (!same_bytes(got.payload, pattern(0, Channel::forward, i, bytes(i)))) ++wrong;
    }
  });
  for (int i = 0; i < messages; ++i) {
    transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, i, bytes(i)));
  }
  receiver.join();
  CHECK(wrong == 0);
}

TEST_CASE("a message that is there before it is received tells when it came") {
  const auto transports = each_kind().make(2);
  transports[1]->expect(0, Channel::forward, 8, 1);
  transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 0, 8));
  (void)transports[1]->receive(0, Channel::forward, in_seconds(600));  // it has been granted
  // On a busy machine it comes late: another is given longer.
  Clock::time_point asked;
  Received got;
  for (auto wait = std::chrono::milliseconds(100); wait < std::chrono::minutes(2); wait *= 4) {
    transports[1]->expect(0, Channel::forward, 8, 1);
    const auto before = Clock::now();
    transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 1, 8));
    std::this_thread::sleep_for(wait);
    asked = Clock::now();
    got = transports[1]->receive(0, Channel::forward, in_seconds(600));
    CHECK(got.arrived >= before);
    if (got.arrived < asked) break;
  }
  CHECK(got.arrived < asked);
}

TEST_CASE("a message of another size than expected is refused with both sizes") {
  const TransportKind& kind = each_kind();
  const auto transports = kind.make(2);
  transports[0]->send(1, Channel::backward, pattern(0, Channel::backward, 0, 12));
  transports[1]->expect(0, Channel::backward, 16, 1);
  const auto receive = [&] { (void)transports[1]->receive(0, Channel::backward, in_seconds(600)); };
  // Where the receiver announces its size to the sender, it is the sender that notices.
  const std::string seen = kind.name == "local"
                               ? "rank 1: expected 16 bytes from rank 0 on the backward channel, which sent 12"
                               : "rank 0: sends 12 bytes to rank 1 on the backward channel, which expects 16";
  CHECK_THROWS_WITH(receive(), ContainsSubstring(seen));
}

TEST_CASE("a receive nobody answers ends at its deadline and names the peer") {
  const auto transports = each_kind().make(3);
  transports[2]->expect(1, Channel::forward, 8, 1);
  const auto start = Clock::now();
  CHECK_THROWS_WITH(transports[2]->receive(1, Channel::forward, in_seconds(0.05)),
                    ContainsSubstring("no message from rank 1") && ContainsSubstring("deadline"));
  CHECK(Clock::now() - start >= std::chrono::milliseconds(50));
  CHECK_THROWS_AS(transports[2]->receive(0, Channel::forward, in_seconds(0.05)), RunError);  // never expected
  CHECK_THROWS_AS(transports[2]->send(3, Channel::forward, {}), RunError);
}

TEST_CASE("abort wakes every waiting rank, whatever it waits for, with the first reason") {
  const auto transports = each_kind().make(5);
  std::atomic<int> woken = 0;
  const auto rank_main = [&](Transport& transport) {
    try {
      switch (transport.rank()) {
        case 0:
          transport.expect(1, Channel::forward, 8, 1);
          (void)transport.receive(1, Channel::forward, in_seconds(600));
          break;
        case 1:
          transport.barrier(in_seconds(600));
          break;
        case 2:
          (void)transport.gather("text", in_seconds(600));
          break;
        case 3: {
          std::vector<float> values(4);
          transport.all_reduce(std::vector<int>{3, 4}, values, in_seconds(600));
          break;
        }
        default:
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          transport.abort("rank 4 has had enough");
          transport.abort("a later reason");
      }
    } catch (const exec::Stopped& stopped) {
      if (stopped.problem() == "rank 4 has had enough") ++woken;
      throw;
    }
  };
  CHECK_THROWS_AS(run_on_threads(transports, rank_main), exec::Stopped);
  CHECK(woken == 4);
  CHECK_THROWS_AS(transports[4]->send(0, Channel::forward, {}), exec::Stopped);
}

TEST_CASE("a sum over a group adds in the order of its ranks, the same bits everywhere") {
  const int ranks = 4;
  const std::size_t count = 1000;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1e3F, 1e3F);
  std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
  for (auto& part : values) std::generate(part.begin(), part.end(), [&] { return uniform(random); });
  const auto original = values;
  const auto transports = each_kind().make(ranks);
  // Groups {0, 2, 3} and {1} at the same time, three times in a row.
  run_on_threads(transports, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const std::vector<int> group = rank == 1 ? std::vector<int>{1} : std::vector<int>{0, 2, 3};
    for (int round = 0; round < 3; ++round) {
      if (round > 0) values[rank] = original[rank];
      transport.all_reduce(group, values[rank], in_seconds(600));
    }
  });
  for (std::size_t i = 0; i < count; ++i) {
    const float expected = (original[0][i] + original[2][i]) + original[3][i];
    REQUIRE(values[0][i] == expected);
    REQUIRE(values[2][i] == expected);
    REQUIRE(values[3][i] == expected);
    REQUIRE(values[1][i] == original[1][i]);
  }
}

TEST_CASE("no rank leaves a barrier before all have come, and rank 0 gathers everyone's text by rank") {
  const int ranks = 5;
  std::atomic<int> inside = 0;
  std::atomic<int> early = 0;
  std::vector<std::string> texts;
  const auto transports = each_kind().make(ranks);
  run_on_threads(transports, [&](Transport& transport) {
    for (int round = 1; round <= 50; ++round) {
      ++inside;
      transport.barrier(in_seconds(600));
      if (inside < round * ranks) ++early;
      transport.barrier(in_seconds(600));
    }
    for (int round = 0; round < 3; ++round) {
      auto all = transport.gather("rank " + std::to_string(transport.rank()), in_seconds(600));
      if (transport.rank() == 0)
        texts = std::move(all);
      else if (!all.empty())
        ++early;
    }
  });
  CHECK(early == 0);
  CHECK(texts == std::vector<std::string>{"rank 0", "rank 1", "rank 2", "rank 3", "rank 4"});
}
