// Several values that the ranks of a data-parallel group gather or sum as one launch on its stream.
#pragma once

#include "common/base/units.hpp"
#include "exec/device/device.hpp"
#include "exec/transport/launch_plan/communicators.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// `call`: its kind, group, bucket and the bucket's type. It starts when the compute stream has made what it reads; what
// is returned comes when all has ended, null where there is nothing to move. Throws as Transport::collective.
[[nodiscard]] MomentPtr start_bucket(Transport& world, Device& device, CollectiveCall call);

// The same, and the compute stream waits for it. Returns the bytes of the values.
Bytes move_bucket(Transport& world, Device& device, const CollectiveCall& call);

}  // namespace plumb::exec
