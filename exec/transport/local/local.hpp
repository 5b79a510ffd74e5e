// Ranks as threads of one process: on the host a message is handed over by its pointer, on a device it is copied there.
#pragma once

#include <memory>
#include <vector>

#include "exec/device/device.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// One transport per rank; they share their queues and may outlive each other.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_local_transports(int ranks);

// Ranks that share one asynchronous device, each with streams of its own: `devices` by rank, which must outlive the
// transports and what these hand out. A message is copied on a stream of its receiver, from when its value is there;
// the sender holds the value until that copy has ended. Sums are added on the compute streams, in the order of the
// group. Only the hosts of the ranks wait for each other.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_local_device_transports(const std::vector<Device*>& devices);

}  // namespace plumb::exec
