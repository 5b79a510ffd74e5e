// A shard group whose tensors are the host's: they move from host to host.
#pragma once

#include <vector>

#include "common/base/units.hpp"
#include "exec/stage/sharding/shard_group.hpp"
#include "exec/transport/collectives/gathers_beside.hpp"
#include "exec/transport/collectives/sums_beside.hpp"

namespace plumb::exec {

class HostShardGroup final : public ShardGroup {
 public:
  struct Place {
    std::vector<int> ranks = {};  // of the run, ascending
    bool beside = false;
    Seconds patience{60};  // how long this rank waits for its peers
  };
  // `transport` must outlive this.
  HostShardGroup(Transport& transport, Place place);

  void start_gather(const std::vector<WeightPtr>& weights) override;
  void finish_gather() override;
  void start_sums(const std::vector<at::Tensor>& gradients) override;
  void finish_sums() override;

 private:
  [[nodiscard]] Clock::time_point deadline() const;

  Place place_;
  GathersBeside gathers_;
  SumsBeside sums_;
};

}  // namespace plumb::exec
