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
  run_on_threads(make_local_transports(6), [&](Transport& world) {
    const int rank = world.rank();
    LaneTransport lane(world, lane_of(layout, rank));
    CHECK(lane.rank() == rank / 2);
    CHECK(lane.size() == 3);
    CHECK(lane.world_rank() == rank);
    CHECK(lane.world_rank(2) == 4 + rank % 2);
    const int next = (lane.rank() + 1) % 3;
    const int before = (lane.rank() + 2) % 3;
    lane.expect(before, Channel::forward, 16, 1);
    lane.expect_parcels(before, 1);
    lane.send(next, Channel::forward, pattern(rank, Channel::forward, 0, 16));
    lane.send_parcel(next, {pattern(rank, Channel::backward, 1, 8)});
    const Received received = lane.receive(before, Channel::forward, in_seconds(10));
    CHECK(same_bytes(received.payload, pattern(2 * before + rank % 2, Channel::forward, 0, 16)));
    const ReceivedParcel parcel = lane.receive_parcel(before, in_seconds(10));
    CHECK(same_bytes(parcel.parcel.at(0), pattern(2 * before + rank % 2, Channel::backward, 1, 8)));
    std::vector<float> values{static_cast<float>(1 << rank)};
    if (lane.rank() != 1) {
      const std::vector<int> ends{0, 2};
      lane.all_reduce(ends, values, in_seconds(10));
      CHECK(values.front() == (rank % 2 == 0 ? 1 + 16 : 2 + 32));
    }
    lane.barrier(in_seconds(10));
    gathered[static_cast<std::size_t>(rank)] = lane.gather(std::to_string(rank), in_seconds(10));
    CHECK(lane.received_bytes() == world.received_bytes());
    CHECK_THROWS_WITH(lane.send(3, Channel::forward, {}), ContainsSubstring("its pipeline of 3 ranks has no rank 3"));
  });
  CHECK(gathered[0] == std::vector<std::string>{"0", "1", "2", "3", "4", "5"});
}
