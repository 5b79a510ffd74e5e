#include "exec/run/lane_transport.hpp"

#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

// Two lanes of three ranks: 0, 2, 4 and 1, 3, 5.
TEST_CASE("a rank talks to its lane's ranks by their places in it, and meets all ranks at barriers") {
  const Layout layout{.pipeline = 3, .tensor = {}, .data = {.degree = 2}};
  std::vector<std::vector<std::string>> gathered(6);
  std::vector<std::vector<std::string>> wrong(6);  // by rank: Catch counts on one thread
  run_on_threads(make_local_transports(6), [&](Transport& world) {
    const int rank = world.rank();
    LaneTransport lane(world, lane_of(layout, rank));
    const auto check = [&](bool holds, const char* what) {
      if (!holds) wrong[static_cast<std::size_t>(rank)].emplace_back(what);
    };
    check(lane.rank() == rank / 2, "rank");
    check(lane.size() == 3, "size");
    check(lane.world_rank() == rank, "world_rank");
    check(lane.world_rank(2) == 4 + rank % 2, "world_rank of another");
    const int next = (lane.rank() + 1) % 3;
    const int before = (lane.rank() + 2) % 3;
    lane.expect(before, Channel::forward, 16, 1);
    lane.expect_parcels(before, 1);
    lane.send(next, Channel::forward, pattern(rank, Channel::forward, 0, 16));
    lane.send_parcel(next, {pattern(rank, Channel::backward, 1, 8)});
    const Received received = lane.receive(before, Channel::forward, in_seconds(10));
    check(same_bytes(received.payload, pattern(2 * before + rank % 2, Channel::forward, 0, 16)), "message");
    const ReceivedParcel parcel = lane.receive_parcel(before, in_seconds(10));
    check(same_bytes(parcel.parcel.at(0), pattern(2 * before + rank % 2, Channel::backward, 1, 8)), "parcel");
    std::vector<float> values{static_cast<float>(1 << rank)};
    if (lane.rank() != 1) {
      const std::vector<int> ends{0, 2};
      lane.all_reduce(ends, values, in_seconds(10));
      check(values.front() == (rank % 2 == 0 ? 1 + 16 : 2 + 32), "sum");
    }
    lane.barrier(in_seconds(10));
    gathered[static_cast<std::size_t>(rank)] = lane.gather(std::to_string(rank), in_seconds(10));
    check(lane.received_bytes() == world.received_bytes(), "received bytes");
    std::string refusal;
    try {
      lane.send(3, Channel::forward, {});
    } catch (const RunError& error) {
      refusal = error.what();
    }
    check(refusal.find("its pipeline of 3 ranks has no rank 3") != std::string::npos, "refusal of a rank beyond");
  });
  for (const std::vector<std::string>& of_rank : wrong) CHECK(of_rank == std::vector<std::string>{});
  CHECK(gathered[0] == std::vector<std::string>{"0", "1", "2", "3", "4", "5"});
}
