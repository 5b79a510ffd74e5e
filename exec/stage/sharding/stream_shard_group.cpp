#include "exec/stage/sharding/stream_shard_group.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "exec/stage/sharding/shared_out.hpp"
#include "exec/stage/tensor/tensor_group.hpp"
#include "exec/transport/stream_bucket.hpp"

namespace plumb::exec {
namespace {

CollectiveValue value_of(const at::Tensor& x) {
  return {.data = static_cast<std::byte*>(x.mutable_data_ptr()), .count = static_cast<std::size_t>(x.numel())};
}

}  // namespace

StreamShardGroup::StreamShardGroup(Transport& transport, Device& device, std::vector<int> ranks, int prefetch)
    : ShardGroup(
          {.index = static_cast<int>(position_in(ranks, transport.rank())), .count = static_cast<int>(ranks.size())},
          prefetch),
      transport_(transport),
      device_(device),
      ranks_(std::move(ranks)) {}

HostCopies StreamShardGroup::start_gather(const std::vector<WeightPtr>& weights, From /*from*/) {
  HostCopies copied;
  std::vector<CollectiveValue> values;
  ElementType type = ElementType::fp32;
  for (const WeightPtr& weight : weights) {
    copied += make_whole(*weight, shard());
    values.push_back(value_of(weight->value));
    type = element_type(weight->value);
  }
  gathers_.push_back(start_bucket(transport_, device_,
                                  {.kind = Collective::all_gather, .group = ranks_, .type = type, .bucket = values}));
  return copied;
}

void StreamShardGroup::finish_gather() {
  device_.compute().wait(gathers_.front());
  gathers_.pop_front();
}

void StreamShardGroup::start_sums(const std::vector<at::Tensor>& gradients) {
  std::vector<CollectiveValue> values;
  for (const at::Tensor& gradient : gradients) values.push_back(value_of(gradient));
  sums_.push_back(
      start_bucket(transport_, device_, {.kind = Collective::reduce_scatter, .group = ranks_, .bucket = values}));
}

void StreamShardGroup::finish_sums() {
  device_.compute().wait(sums_.front());
  sums_.pop_front();
}

}  // namespace plumb::exec
