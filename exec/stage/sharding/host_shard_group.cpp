#include "exec/stage/sharding/host_shard_group.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "exec/stage/sharding/shared_out.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {

HostShardGroup::HostShardGroup(Transport& transport, Place place)
    : ShardGroup({.index = static_cast<int>(position_in(place.ranks, transport.rank())),
                  .count = static_cast<int>(place.ranks.size())},
                 place.beside),
      place_(std::move(place)),
      gathers_(transport, place_.ranks),
      sums_(transport, place_.ranks, SumsBeside::Gets::own_part) {}

Clock::time_point HostShardGroup::deadline() const {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(place_.patience.value));
}

void HostShardGroup::start_gather(const std::vector<WeightPtr>& weights) {
  std::vector<GathersBeside::PartList> values;
  for (const WeightPtr& weight : weights) {
    make_whole(*weight, shard());
    const std::span<std::byte> bytes(static_cast<std::byte*>(weight->value.mutable_data_ptr()), weight->value.nbytes());
    values.push_back(equal_parts(bytes, place_.ranks.size(), static_cast<std::size_t>(weight->value.element_size())));
  }
  gathers_.start(std::move(values));
}

void HostShardGroup::finish_gather() { gathers_.finish(deadline()); }

void HostShardGroup::start_sums(const std::vector<at::Tensor>& gradients) {
  for (const at::Tensor& gradient : gradients) {
    sums_.start({gradient.mutable_data_ptr<float>(), static_cast<std::size_t>(gradient.numel())});
  }
}

void HostShardGroup::finish_sums() { sums_.finish(deadline()); }

}  // namespace plumb::exec
