#include "exec/transport/stream_bucket.hpp"

namespace plumb::exec {

MomentPtr start_bucket(Transport& world, Device& device, CollectiveCall call) {
  if (call.bucket.empty()) return nullptr;
  call.use = CommunicatorUse::data;
  call.count = 0;
  for (const CollectiveValue& value : call.bucket) call.count += value.count;
  if (!call.ready) call.ready = device.compute().record();
  return world.collective(call);
}

Bytes move_bucket(Transport& world, Device& device, const CollectiveCall& call) {
  device.compute().wait(start_bucket(world, device, call));
  Bytes moved;
  for (const CollectiveValue& value : call.bucket) {
    moved += Bytes{static_cast<std::int64_t>(value.count) * element_bytes(call.type)};
  }
  return moved;
}

}  // namespace plumb::exec
