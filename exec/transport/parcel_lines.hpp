// Evicted activations of a rank where messages move on streams whose library knows no sizes: these go ahead from host
// to host, so that both ends of a parcel can be launched.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/receive_buffers.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Parcels by peer, a rank of the run, in the order of the schedule. A host that launches a receive waits until the
// sender's has come to its send. It waits for no more than a device does that works off all its streams as one
// (StreamOrder::serial): there the receive ends, and all behind it starts, only when the sender's batch has started.
// Launches that cannot deadlock under that order (check_launches) cannot here.
class ParcelLines {
 public:
  // `control` carries the sizes; both must outlive this.
  ParcelLines(Transport& control, ReceiveBuffers& buffers) : control_(control), buffers_(buffers) {}

  // Room for the sizes of all parcels that are received in the step: no sender waits for it.
  void begin_step(const RankLaunches& launches);

  // Tells the peer's host the sizes; keeps the parcel until it is launched. Throws RunError for a peer out of range.
  void send(int peer, Parcel parcel);
  // Throws RunError where none has been handed over for `operation`.
  [[nodiscard]] Parcel take_to_send(const LaunchOperation& operation);

  // Buffers for the parcel that `operation` receives. Waits on the host for its sizes; `look` is called meanwhile, and
  // throws what ends the run.
  [[nodiscard]] Parcel take_buffers(const LaunchOperation& operation, const std::function<void()>& look);

  // The next of its peer: with `ready` in each part it can be received.
  void launched(int peer, Parcel parcel);
  [[nodiscard]] bool has(int peer) const;
  // Throws RunError for one that has not been launched.
  [[nodiscard]] Parcel receive(int peer);

 private:
  void require_peer(int peer) const;
  [[nodiscard]] RunError failure(const std::string& problem) const;

  Transport& control_;
  ReceiveBuffers& buffers_;
  std::map<int, std::deque<Parcel>> to_send_;   // handed over, not launched
  std::map<int, std::deque<Parcel>> received_;  // launched, not taken
};

}  // namespace plumb::exec
