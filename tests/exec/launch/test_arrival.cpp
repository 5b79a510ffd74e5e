// Ranks that do not come are named; those that come with other options are refused by all alike.
#include "exec/launch/arrival.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Membership of_four(int rank) { return {.rank = rank, .size = 4}; }

}  // namespace

TEST_CASE("ranks that do not join in time are all named") {
  Board board;
  int polled = 0;
  board.rendezvous().put("here/2", "--device cpu");
  CHECK_THROWS_WITH(require_same_start("--device cpu", of_four(0), board.rendezvous(), [&] { ++polled; }, {0.1}),
                    ContainsSubstring("start: ranks 1, 3 of 4 did not join within 0.1 s"));
  CHECK(polled > 0);
  board.rendezvous().put("here/1", "--device cpu");
  CHECK_THROWS_AS(require_same_start("--device cpu", of_four(0), board.rendezvous(), [] {}, {0.1}), RunError);
  board.rendezvous().put("here/3", "--device cpu");
  CHECK_NOTHROW(require_same_start("--device cpu", of_four(0), board.rendezvous(), [] {}, {0.1}));
}

TEST_CASE("a rank with another device is named beside rank 0, by each rank") {
  Board board;
  std::vector<std::string> said(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const std::string device = rank == 2 ? "--device cuda" : "--device cpu";
        require_same_start(device, of_four(rank), board.rendezvous(), [] {}, {20});
      } catch (const InputError& error) {
        said[static_cast<std::size_t>(rank)] = error.problem();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(said == std::vector<std::string>(4, "rank 2 was started with --device cuda, rank 0 with --device cpu"));
}

TEST_CASE("the end of another rank ends the wait") {
  Board board;
  CHECK_THROWS_WITH(
      require_same_start("", of_four(0), board.rendezvous(), [] { throw RunError("", "interrupted"); }, {20}),
      ContainsSubstring("interrupted"));
}

TEST_CASE("a difference that another rank has seen first, and ended with, is this one's to tell, too") {
  Board board;
  const auto others_come_and_end = [&] {
    for (int rank = 1; rank < 4; ++rank) board.rendezvous().put("here/" + std::to_string(rank), "--device cuda");
    throw RunError("", "rank 1: has ended");
  };
  CHECK_THROWS_AS(require_same_start("--device cpu", of_four(0), board.rendezvous(), others_come_and_end, {20}),
                  InputError);
}

TEST_CASE("rank 0 has come when somebody listens at its port") {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket, generic, size) == 0);
  REQUIRE(::getsockname(socket, generic, &size) == 0);
  const int port = ntohs(address.sin_port);
  CHECK_THROWS_WITH(wait_for_listener("127.0.0.1", port, {0.1}),
                    ContainsSubstring("127.0.0.1:" + std::to_string(port) + ": rank 0 did not join within 0.1 s"));
  REQUIRE(::listen(socket, 8) == 0);
  CHECK_NOTHROW(wait_for_listener("127.0.0.1", port, {20}));
  ::close(socket);
}
