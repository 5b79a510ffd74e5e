#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "common/base/error.hpp"
#include "exec/transport/gloo/gloo.hpp"
#include "exec/transport/gloo/keep_alive.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::vector<std::unique_ptr<Transport>> two_ranks(const std::shared_ptr<RunStore>& store, const GlooOptions& common) {
  std::vector<std::unique_ptr<Transport>> transports(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GlooOptions options = common;
      options.rank = rank;
      options.size = 2;
      options.port = store->port();
      transports[static_cast<std::size_t>(rank)] =
          make_gloo_transport(options, RunStore::join("127.0.0.1", store->port(), {20}, common.attempt));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return transports;
}

}  // namespace

// torchrun --max-restarts: its agent's store outlives the ranks.
TEST_CASE("ranks that are started again over one store see nothing of the attempt before") {
  const auto store = RunStore::host(0);
  {
    auto transports = two_ranks(store, {});
    transports[0]->abort("the first attempt has failed");
    CHECK_THROWS_AS(transports[1]->barrier(in_seconds(600)), RunError);
  }
  REQUIRE(store->stop_reason() == "the first attempt has failed");
  store->put("nccl/0/id", "of the first attempt");
  auto transports = two_ranks(store, {.attempt = 1});
  std::thread other([&] { transports[1]->barrier(in_seconds(600)); });
  CHECK_NOTHROW(transports[0]->barrier(in_seconds(600)));
  other.join();
  const auto again = RunStore::join("127.0.0.1", store->port(), {20}, 1);
  CHECK(again->stop_reason().empty());
  CHECK_FALSE(again->find("nccl/0/id"));
}

TEST_CASE("a peer that has gone is named by whoever waits for it") {
  const auto store = RunStore::host(0);
  auto transports = two_ranks(store, {});
  transports[1]->expect(0, Channel::forward, 8, 1);
  transports[0].reset();
  CHECK_THROWS_WITH(transports[1]->receive(0, Channel::forward, in_seconds(600)),
                    ContainsSubstring("rank 1: lost rank 0 while receiving from it on the forward channel"));
}

TEST_CASE("a rank that joins and goes silent before it is connected is named with what it was doing") {
  const auto store = RunStore::host(0);
  store->say(1, KeepAlive::sign_of_life(0, "connecting to the other ranks"));
  const GlooOptions options{.size = 2, .port = store->port(), .start_timeout = {600}, .silence_limit = {1}};
  CHECK_THROWS_WITH(make_gloo_transport(options, RunStore::join("127.0.0.1", store->port(), {20})),
                    ContainsSubstring("rank 1, connecting to the other ranks: gives no sign of life since 1.0 s"));
}

TEST_CASE("a stop ends a rank that still waits for others to connect") {
  const auto store = RunStore::host(0);
  store->stop("rank 1: told to end (SIGTERM)");
  const GlooOptions options{.size = 2, .port = store->port(), .start_timeout = {600}};
  CHECK_THROWS_WITH(make_gloo_transport(options, RunStore::join("127.0.0.1", store->port(), {20})),
                    ContainsSubstring("rank 1: told to end (SIGTERM)"));
}

// Behind the last barrier of a run the ranks leave one by one, some while others are still in it.
TEST_CASE("a rank that leaves in good order ends nobody else's run, and is named where something is sent to it") {
  const auto store = RunStore::host(0);
  auto transports = two_ranks(store, {});
  std::thread other([&] {
    transports[1]->barrier(in_seconds(600));
    transports[1].reset();
  });
  transports[0]->barrier(in_seconds(600));
  other.join();
  for (int look = 0; look < 30; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    REQUIRE_NOTHROW(transports[0]->poll());
  }
  CHECK_THROWS_WITH(transports[0]->barrier(in_seconds(600)), ContainsSubstring("lost rank 1"));
}

TEST_CASE("a peer that has gone is named by whoever waits for what was evicted to it") {
  const auto store = RunStore::host(0);
  auto transports = two_ranks(store, {});
  transports[1]->expect_parcels(0, 1);
  transports[0].reset();
  CHECK_THROWS_WITH(transports[1]->receive_parcel(0, in_seconds(600)),
                    ContainsSubstring("rank 1: lost rank 0 while receiving evicted activations from it"));
}

// More than sockets hold, so that most of it has not left when the sender ends; the first brings the grant of both.
TEST_CASE("messages arrive although their sender leaves at once") {
  constexpr std::size_t bytes = std::size_t{64} << 20U;
  const auto store = RunStore::host(0);
  auto transports = two_ranks(store, {});
  transports[1]->expect(0, Channel::forward, bytes, 2);
  for (const int sequence : {1, 2}) {
    transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, sequence, bytes));
    std::thread leaves([&] {
      if (sequence == 2) transports[0].reset();
    });
    const Received got = transports[1]->receive(0, Channel::forward, in_seconds(600));
    leaves.join();
    CHECK(same_bytes(got.payload, pattern(0, Channel::forward, sequence, bytes)));
  }
}

// Ranks of one host: what is small goes by a link, as soon as its receiver has said that it expects it.
TEST_CASE("a rank that leaves stays until its last message has gone, and no longer") {
  const std::vector<TransportKind> kinds = transport_kinds();
  const auto gloo = std::ranges::find(kinds, "gloo", &TransportKind::name);
  REQUIRE(gloo != kinds.end());
  // It would give up after five seconds, each time; on a busy machine once may take longer.
  bool at_once = false;
  for (int times = 0; times < 20 && !at_once; ++times) {
    auto transports = gloo->make(2);
    transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 1, 64));
    Clock::duration took{};
    std::thread leaves([&] {
      const Clock::time_point start = Clock::now();
      transports[0].reset();
      took = Clock::now() - start;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    transports[1]->expect(0, Channel::forward, 64, 1);
    const Received got = transports[1]->receive(0, Channel::forward, in_seconds(600));
    leaves.join();
    CHECK(same_bytes(got.payload, pattern(0, Channel::forward, 1, 64)));
    at_once = took < std::chrono::seconds(4);
  }
  CHECK(at_once);
}

TEST_CASE("a peer that leaves with messages still to come is lost, not in good order") {
  const auto store = RunStore::host(0);
  auto transports = two_ranks(store, {});
  transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 1, 64));  // which rank 1 does not expect
  transports[1].reset();
  const auto polled = [&] {
    for (int look = 0; look < 500; ++look) {
      transports[0]->poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  CHECK_THROWS_WITH(polled(), ContainsSubstring("lost rank 1 while sending to it on the forward channel"));
}

TEST_CASE("only a few sent small messages are still held") {
  constexpr int messages = 300;
  constexpr int more = 100;  // the thread that lets go of them may come late on a busy machine
  constexpr int most_held = 64;
  const auto store = RunStore::host(0);
  const auto transports = two_ranks(store, {});
  transports[1]->expect(0, Channel::forward, 64, messages + more + 1);
  std::vector<std::weak_ptr<void>> sent;
  const auto held = [&] {
    return std::ranges::count_if(sent, [](const std::weak_ptr<void>& owner) { return !owner.expired(); });
  };
  for (int i = 0; i < messages + more && (i < messages || held() > most_held); ++i) {
    if (i >= messages) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Payload payload = pattern(0, Channel::forward, i, 64);
    sent.emplace_back(payload.owner);
    transports[0]->send(1, Channel::forward, std::move(payload));
    CHECK(same_bytes(transports[1]->receive(0, Channel::forward, in_seconds(600)).payload,
                     pattern(0, Channel::forward, i, 64)));
  }
  CHECK(held() <= most_held);
}

TEST_CASE("buffers of receives come from the given allocator") {
  const auto store = RunStore::host(0);
  std::vector<std::byte> memory(64);
  GlooOptions options;
  options.allocate = [&](std::size_t bytes) { return Payload{.owner = {}, .data = memory.data(), .size = bytes}; };
  const auto transports = two_ranks(store, options);
  transports[1]->expect(0, Channel::forward, 64, 1);
  transports[0]->send(1, Channel::forward, pattern(0, Channel::forward, 3, 64));
  const Received got = transports[1]->receive(0, Channel::forward, in_seconds(600));
  CHECK(got.payload.data == memory.data());
  CHECK(same_bytes(got.payload, pattern(0, Channel::forward, 3, 64)));
}

TEST_CASE("the first reason to stop a run counts, and signs of life are read back") {
  const auto store = RunStore::host(0);
  const auto other = RunStore::join("127.0.0.1", store->port(), {20});
  CHECK(other->stop_reason().empty());
  other->say(3, "step 1, 3F7");
  // The store takes note of what is said without an answer: it is there soon, not at once.
  for (int tries = 0; tries < 500 && store->said(3).empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(store->said(3) == "step 1, 3F7");
  CHECK(store->said(2).empty());
  CHECK(other->stop_status() == ExitStatus::done);
  store->stop("rank 1 was given a wrong file", ExitStatus::wrong_input);
  other->stop("rank 2 failed");
  CHECK(other->stop_reason() == "rank 1 was given a wrong file");
  CHECK(other->stop_status() == ExitStatus::wrong_input);
}

TEST_CASE("a port in use is named") {
  const auto store = RunStore::host(0);
  CHECK_THROWS_WITH(RunStore::host(store->port()),
                    ContainsSubstring("port " + std::to_string(store->port())) && ContainsSubstring("MASTER_PORT"));
}

TEST_CASE("something else that listens where the store should is said, and not waited for") {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket, generic, length) == 0);
  REQUIRE(::listen(socket, 1) == 0);
  REQUIRE(::getsockname(socket, generic, &length) == 0);
  const int port = ntohs(address.sin_port);
  CHECK_THROWS_WITH(RunStore::join("127.0.0.1", port, {0.5}),
                    ContainsSubstring("127.0.0.1:" + std::to_string(port) +
                                      ": something listens there that does not answer as a run's store") &&
                        ContainsSubstring("MASTER_PORT"));
  ::close(socket);  // ends the thread that was left behind
}

TEST_CASE("a store that nobody hosts is said after the given time") {
  const int port = RunStore::host(0)->port();  // free again
  const auto start = Clock::now();
  CHECK_THROWS_WITH(RunStore::join("127.0.0.1", port, {1}), ContainsSubstring("cannot be reached"));
  CHECK(Clock::now() - start >= std::chrono::seconds(1));
}
