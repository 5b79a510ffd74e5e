// A shard group that moves on the streams of a device.
#pragma once

#include <deque>
#include <vector>

#include "exec/device/device.hpp"
#include "exec/stage/sharding/shard_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// A gather or the sums of a block are a launch on the group's stream. It starts when the compute stream has made what
// it reads; `finish` lets compute wait for it, so memory that is let go of behind that is used again only when it has
// ended. No call waits for the device. Sums are NCCL's, in an order of its own.
class StreamShardGroup final : public ShardGroup {
 public:
  // `transport` (Transport::collective) and `device`, whose compute stream is the thread's, must outlive this. `ranks`:
  // of the run, ascending.
  StreamShardGroup(Transport& transport, Device& device, std::vector<int> ranks, int prefetch);

  // There is no second copy: ZeRO++ is not run on devices.
  HostCopies start_gather(const std::vector<WeightPtr>& weights, From from) override;
  void finish_gather() override;
  void start_sums(const std::vector<at::Tensor>& gradients) override;
  void finish_sums() override;

 private:
  Transport& transport_;
  Device& device_;
  std::vector<int> ranks_;
  std::deque<MomentPtr> gathers_;  // ends of those under way
  std::deque<MomentPtr> sums_;     // likewise
};

}  // namespace plumb::exec
