#include "exec/transport/parcel_lines.hpp"

#include <atomic>

#include "exec/device/host_device.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

LaunchOperation operation(ActionKind kind, int microbatch, int peer, bool sends) {
  return {.action = {kind, 0, microbatch}, .index = microbatch, .peer = peer, .sends = sends};
}

LaunchBatch batch(const LaunchOperation& operation) {
  return {.use = CommunicatorUse::evictions, .operations = {operation}, .place = operation.index};
}

}  // namespace

TEST_CASE("a parcel's receiver gets buffers of the sizes that its sender has, in order") {
  // Ranks 1 and 2 of the run have a pipeline.
  const std::vector<std::vector<std::size_t>> sizes{{3, 0, 1000}, {}, {8}};
  std::atomic<int> wrong = 0;
  run_on_threads(make_local_transports(3), [&](Transport& control) {
    if (control.rank() == 0) return;
    const auto device = make_host_device();
    ReceiveBuffers buffers(*device);
    ParcelLines lines(control, buffers);
    const int peer = control.rank() == 1 ? 2 : 1;
    RankLaunches launches;
    for (int i = 0; i < 3; ++i) launches.push_back(batch(operation(ActionKind::evict, i, peer, control.rank() == 1)));
    lines.begin_step(launches);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const LaunchOperation& mine = launches[i].operations.front();
      if (mine.sends) {
        Parcel parcel;
        for (const std::size_t size : sizes[i]) parcel.push_back(pattern(1, Channel::forward, 0, size));
        lines.send(peer, std::move(parcel));
        wrong += lines.take_to_send(mine).size() == sizes[i].size() ? 0 : 1;
        continue;
      }
      Parcel taken = lines.take_buffers(mine, [&] { control.poll(); });
      std::vector<std::size_t> found;
      for (const Payload& part : taken) found.push_back(part.size);
      wrong += found == sizes[i] ? 0 : 1;
      wrong += lines.has(peer) ? 1 : 0;
      lines.launched(peer, std::move(taken));
      wrong += lines.has(peer) && lines.receive(peer).size() == sizes[i].size() ? 0 : 1;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("messages that were not handed over, not launched or have no peer are refused by name") {
  const auto controls = make_local_transports(2);
  const auto device = make_host_device();
  ReceiveBuffers buffers(*device);
  ParcelLines lines(*controls[0], buffers);
  CHECK_THROWS_WITH(lines.take_to_send(operation(ActionKind::evict, 3, 1, true)),
                    ContainsSubstring("rank 0: 0EVICT3 has not been handed over"));
  CHECK_THROWS_WITH(lines.receive(1), ContainsSubstring("from rank 1 that were not launched"));
  CHECK_THROWS_WITH(lines.send(0, {}), ContainsSubstring("has no peer 0"));
  CHECK_THROWS_WITH(lines.send(2, {}), ContainsSubstring("has no peer 2"));
  const auto stopped = [] { throw exec::Stopped("enough"); };
  CHECK_THROWS_AS(lines.take_buffers(operation(ActionKind::load, 0, 1, false), stopped), exec::Stopped);
  controls[0]->expect_parcels(1, 1);
  controls[1]->send_parcel(0, {pattern(1, Channel::forward, 0, 24)});
  CHECK_THROWS_WITH(lines.take_buffers(operation(ActionKind::load, 0, 1, false), [] {}),
                    ContainsSubstring("something else than the sizes of 0LOAD0"));
}
