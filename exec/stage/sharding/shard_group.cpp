#include "exec/stage/sharding/shard_group.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "exec/stage/sharding/shared_out.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {

ShardGroup::ShardGroup(Transport& transport, Place place)
    : place_(std::move(place)),
      shard_{.index = static_cast<int>(position_in(place_.ranks, transport.rank())),
             .count = static_cast<int>(place_.ranks.size())},
      gathers_(transport, place_.ranks),
      sums_(transport, place_.ranks, SumsBeside::Gets::own_part) {}

Clock::time_point ShardGroup::deadline() const {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(place_.patience.value));
}

void ShardGroup::start_gather(const std::vector<WeightPtr>& weights) {
  std::vector<GathersBeside::PartList> values;
  for (const WeightPtr& weight : weights) {
    make_whole(*weight, shard_);
    const std::span<std::byte> bytes(static_cast<std::byte*>(weight->value.mutable_data_ptr()), weight->value.nbytes());
    values.push_back(equal_parts(bytes, place_.ranks.size(), static_cast<std::size_t>(weight->value.element_size())));
  }
  gathers_.start(std::move(values));
}

void ShardGroup::finish_gather() { gathers_.finish(deadline()); }

void ShardGroup::start_sum(const at::Tensor& gradient) {
  sums_.start({gradient.mutable_data_ptr<float>(), static_cast<std::size_t>(gradient.numel())});
}

void ShardGroup::finish_sums() { sums_.finish(deadline()); }

}  // namespace plumb::exec
