// A shard group whose tensors are the host's: they move from host to host.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "common/base/units.hpp"
#include "exec/stage/sharding/shard_group.hpp"
#include "exec/transport/collectives/gathers_beside.hpp"
#include "exec/transport/collectives/quantised_sums.hpp"
#include "exec/transport/collectives/sums_beside.hpp"

namespace plumb::exec {

class HostShardGroup final : public ShardGroup {
 public:
  struct Place {
    std::vector<int> ranks = {};     // of the run, ascending
    std::vector<int> inside = {};    // of these, that share a second copy of the weights; empty: there is none
    bool quantises_weights = false;  // that come from the own parts
    // Of gradients that are summed as QuantisedSums does; empty: as they are.
    std::vector<int> exchanged_inside = {};
    std::vector<int> exchanged_across = {};
    int prefetch = 0;      // as of a ShardGroup
    Seconds patience{60};  // how long this rank waits for its peers
  };
  // `transport` must outlive this.
  HostShardGroup(Transport& transport, Place place);

  HostCopies start_gather(const std::vector<WeightPtr>& weights, From from) override;
  void finish_gather() override;
  void start_sums(const std::vector<at::Tensor>& gradients) override;
  void finish_sums() override;

 private:
  // That is under way. Quantised: of each weight a buffer of all parts in their order.
  struct Gather {
    std::vector<WeightPtr> weights;
    From from = From::parts;
    std::vector<at::Tensor> quantised = {};
    Clock::time_point begun = {};
    Clock::time_point started = {};
  };

  struct Sums {
    std::size_t last = 0;  // so many of all that this group starts have ended with it
    Clock::time_point begun = {};
    Clock::time_point started = {};
  };

  [[nodiscard]] Clock::time_point deadline() const;
  [[nodiscard]] HostCopies start(Gather& gather);
  void start_quantised(Gather& gather);
  void finish(const Gather& gather);
  void take_quantised(const Gather& gather) const;

  Transport& transport_;
  Place place_;
  GathersBeside gathers_;
  std::optional<GathersBeside> second_gathers_;
  std::deque<Gather> under_way_;
  SumsBeside sums_;
  std::optional<QuantisedSums> quantised_sums_;
  std::deque<Sums> sums_under_way_;
};

}  // namespace plumb::exec
