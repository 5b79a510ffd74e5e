#include "exec/transport/host_links.hpp"

#include <unistd.h>

#include <array>
#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

using namespace std::chrono_literals;

std::string this_run() {
  static int runs = 0;
  return std::to_string(::getpid()) + "/" + std::to_string(++runs);
}

struct Pair {
  std::string run = this_run();
  HostLinks sender{run, 0};
  HostLinks receiver{run, 1};
  HostLink in = receiver.open_from(0, 2);
  HostLink out = sender.opened_by(1, 2).value();
};

using Message = std::array<std::byte, 3>;

Message message(int number) { return {std::byte(number), std::byte(number >> 8), std::byte{7}}; }

}  // namespace

TEST_CASE("messages on a link of a host arrive whole, in order, with when they were sent") {
  const Pair pair;
  Message got{};
  CHECK_FALSE(pair.in.receive(got));
  const auto before = Clock::now();
  REQUIRE(pair.out.send(message(1)) == Sent::yes);
  const auto between = Clock::now();
  REQUIRE(pair.out.send(message(2)) == Sent::yes);
  const auto first = pair.in.receive(got);
  REQUIRE(first);
  CHECK(*first >= before);
  CHECK(*first <= between);
  CHECK(got == message(1));
  const auto second = pair.in.receive(got);
  REQUIRE(second);
  CHECK(*second >= between);
  CHECK(got == message(2));
}

TEST_CASE("an empty message is one, too") {
  const Pair pair;
  REQUIRE(pair.out.send({}) == Sent::yes);
  CHECK(pair.in.receive({}));
  CHECK_FALSE(pair.in.receive({}));
}

TEST_CASE("a full link of a host says so, and that there is room again") {
  const Pair pair;
  int sent = 0;
  while (pair.out.send(message(sent)) == Sent::yes) ++sent;
  CHECK(sent > 10);
  std::thread receiver([&] {
    Message got{};
    for (int i = 0; i < sent; ++i) (void)pair.in.receive(got);
  });
  pair.out.await_room();
  receiver.join();
  CHECK(pair.out.send(message(sent)) == Sent::yes);
  Message got{};
  CHECK(pair.in.receive(got));
  CHECK(got == message(sent));
}

TEST_CASE("a sender that waits for room leaves when sends are closed, and sent messages arrive") {
  const Pair pair;
  int sent = 0;
  while (pair.out.send(message(sent)) == Sent::yes) ++sent;
  std::thread waiting([&] { pair.out.await_room(); });
  std::this_thread::sleep_for(20ms);
  pair.out.close_sends();
  waiting.join();
  Message got{};
  for (int i = 0; i < sent; ++i) REQUIRE(pair.in.receive(got));
  CHECK_THROWS_AS(pair.in.receive(got), RunError);
}

TEST_CASE("a waiting receiver wakes by a message, a notifier, the deadline, or the sender's end") {
  Pair pair;
  const Bell quiet;
  const auto later = Clock::now() + 600s;
  Message got{};
  std::thread sender([&] {
    std::this_thread::sleep_for(20ms);
    (void)pair.out.send(message(5));
  });
  pair.in.await_message(quiet, later);
  CHECK(pair.in.receive(got));
  sender.join();

  const auto start = Clock::now();
  pair.in.await_message(quiet, start + 30ms);
  CHECK(Clock::now() - start >= 30ms);

  Bell bell;
  std::thread ringer([&] {
    std::this_thread::sleep_for(20ms);
    bell.ring();
  });
  pair.in.await_message(bell, later);
  pair.in.await_message(bell, later);  // it has rung
  ringer.join();

  pair.out = HostLink();
  pair.in.await_message(quiet, later);
  CHECK_THROWS_WITH(pair.in.receive(got), ContainsSubstring("closed by peer"));
  CHECK(Clock::now() < later);
}

TEST_CASE("a link whose receiver has gone is closed") {
  Pair pair;
  pair.in = HostLink();
  CHECK(pair.out.send(message(1)) == Sent::closed);
}

TEST_CASE("a rank that has gone is lost by whoever opens a link from it, or has opened one") {
  const std::string run = this_run();
  const HostLinks receiver(run, 1);
  HostLink open;
  {
    const HostLinks sender(run, 0);
    open = receiver.open_from(0, 0);
  }
  Message got{};
  CHECK_THROWS_AS(open.receive(got), RunError);
  CHECK_THROWS_WITH(receiver.open_from(0, 0), ContainsSubstring("rank 1: lost rank 0"));
}

TEST_CASE("links are told apart by receiver and queue, and there only once they are opened") {
  const std::string run = this_run();
  HostLinks sender(run, 0);
  const HostLinks first(run, 1);
  const HostLinks second(run, 2);
  CHECK_FALSE(sender.opened_by(1, 0));
  const HostLink of_second = second.open_from(0, 1);
  const HostLink of_first = first.open_from(0, 1);
  CHECK_FALSE(sender.opened_by(1, 0));
  const auto to_first = sender.opened_by(1, 1);
  const auto to_second = sender.opened_by(2, 1);
  REQUIRE(to_first);
  REQUIRE(to_second);
  REQUIRE(to_first->send(message(1)) == Sent::yes);
  REQUIRE(to_second->send(message(2)) == Sent::yes);
  Message got{};
  REQUIRE(of_first.receive(got));
  CHECK(got == message(1));
  REQUIRE(of_second.receive(got));
  CHECK(got == message(2));
}

TEST_CASE("a message of another size than its receiver expects is refused") {
  const Pair pair;
  std::array<std::byte, 2> shorter{};
  std::array<std::byte, 4> longer{};
  REQUIRE(pair.out.send(message(1)) == Sent::yes);
  CHECK_THROWS_AS(pair.in.receive(shorter), RunError);
  REQUIRE(pair.out.send(message(1)) == Sent::yes);
  CHECK_THROWS_AS(pair.in.receive(longer), RunError);
}

TEST_CASE("two runs of a host, or two ranks, cannot have one name") {
  const std::string run = this_run();
  const HostLinks one(run, 0);
  CHECK_THROWS_WITH(HostLinks(run, 0), ContainsSubstring("rank 0: no socket on this host"));
  CHECK_NOTHROW(HostLinks(run, 1));
}
