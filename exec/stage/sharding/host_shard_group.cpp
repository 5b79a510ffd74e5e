#include "exec/stage/sharding/host_shard_group.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <numeric>
#include <utility>

#include "common/cost/block_quantisation.hpp"
#include "exec/host/pauses.hpp"
#include "exec/stage/sharding/shared_out.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/quantised_values.hpp"

namespace plumb::exec {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Nobody shares it out: one part.
StateShard shard_in(const std::vector<int>& ranks, int rank) {
  if (ranks.empty()) return {};
  return {.index = static_cast<int>(position_in(ranks, rank)), .count = static_cast<int>(ranks.size())};
}

// Of a part as int8.
std::size_t quantised_size_of(const Weight& weight, const StateShard& shard) {
  const IndexRange range = range_of_part(weight.elements(), shard);
  return quantised_size(static_cast<std::size_t>(range.end - range.begin), quantised_weight_bits);
}

}  // namespace

HostShardGroup::HostShardGroup(Transport& transport, Place place)
    : ShardGroup(shard_in(place.ranks, transport.rank()), place.prefetch, shard_in(place.inside, transport.rank())),
      transport_(transport),
      place_(std::move(place)),
      gathers_(transport, place_.ranks),
      sums_(transport, place_.ranks, SumsBeside::Gets::own_part) {
  if (!place_.exchanged_inside.empty()) {
    quantised_sums_.emplace(transport, place_.exchanged_inside, place_.exchanged_across);
  }
  if (has_second_copy()) second_gathers_.emplace(transport, place_.inside);
}

Clock::time_point HostShardGroup::deadline() const { return after(unpaused_now(), place_.patience); }

HostCopies HostShardGroup::start_gather(const std::vector<WeightPtr>& weights, From from) {
  Gather& gather = under_way_.emplace_back(Gather{.weights = weights, .from = from});
  gather.begun = Clock::now();
  const HostCopies copied = start(gather);
  gather.started = Clock::now();
  return copied;
}

HostCopies HostShardGroup::start(Gather& gather) {
  const bool second = gather.from == From::second_copy;
  if (place_.quantises_weights && !second) {
    start_quantised(gather);
    return {};
  }
  HostCopies copied;
  const StateShard own = second ? second_shard() : shard();
  std::vector<GathersBeside::PartList> values;
  for (const WeightPtr& weight : gather.weights) {
    copied += make_whole(*weight, second ? weight->second_value : weight->own_value, own);
    values.push_back(equal_parts(bytes_of(weight->value), static_cast<std::size_t>(own.count),
                                 static_cast<std::size_t>(weight->value.element_size())));
  }
  (second ? *second_gathers_ : gathers_).start(std::move(values));
  return copied;
}

void HostShardGroup::start_quantised(Gather& gather) {
  std::vector<GathersBeside::PartList> values;
  for (const WeightPtr& weight : gather.weights) {
    std::vector<std::size_t> sizes;
    for (int part = 0; part < shard().count; ++part) {
      sizes.push_back(quantised_size_of(*weight, {.index = part, .count = shard().count}));
    }
    const auto all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    gather.quantised.push_back(at::empty({static_cast<std::int64_t>(all)}, at::kByte));
    std::span<std::byte> rest = bytes_of(gather.quantised.back());
    GathersBeside::PartList parts;
    for (const std::size_t size : sizes) {
      parts.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
    quantise_part(weight->own_value, parts[static_cast<std::size_t>(shard().index)]);
    values.push_back(std::move(parts));
  }
  gathers_.start(std::move(values));
}

// The own part, too: all ranks compute with the same values.
void HostShardGroup::take_quantised(const Gather& gather) const {
  for (std::size_t n = 0; n < gather.weights.size(); ++n) {
    Weight& weight = *gather.weights[n];
    weight.value = at::empty(weight.shape, weight.own_value.options());
    std::span<const std::byte> rest = bytes_of(gather.quantised[n]);
    for (int part = 0; part < shard().count; ++part) {
      const StateShard of{.index = part, .count = shard().count};
      const std::size_t size = quantised_size_of(weight, of);
      dequantise_part(rest.first(size), part_of(weight.value, of));
      rest = rest.subspan(size);
    }
  }
}

void HostShardGroup::finish_gather() {
  const Gather gather = std::move(under_way_.front());
  under_way_.pop_front();
  const Clock::time_point wanted = Clock::now();
  finish(gather);
  const GathersBeside& of = gather.from == From::second_copy ? *second_gathers_ : gathers_;
  transport_.within_actions().data += time_of({.begun = gather.begun,
                                               .started = gather.started,
                                               .wanted = wanted,
                                               .ended = Clock::now(),
                                               .arrived = of.last_arrival()});
}

void HostShardGroup::finish(const Gather& gather) {
  if (gather.from == From::second_copy) return second_gathers_->finish(deadline());
  gathers_.finish(deadline());
  if (place_.quantises_weights) take_quantised(gather);
  if (!has_second_copy()) return;
  const c10::NoGradGuard no_grad;
  for (const WeightPtr& weight : gather.weights) weight->second_value.copy_(part_of(weight->value, second_shard()));
}

void HostShardGroup::start_sums(const std::vector<at::Tensor>& gradients) {
  Sums& sums = sums_under_way_.emplace_back(Sums{.begun = Clock::now()});
  for (const at::Tensor& gradient : gradients) {
    const std::span<float> values(gradient.mutable_data_ptr<float>(), static_cast<std::size_t>(gradient.numel()));
    if (quantised_sums_) {
      quantised_sums_->start(values);
    } else {
      sums_.start(values);
    }
  }
  sums.last = quantised_sums_ ? quantised_sums_->started() : sums_.started();
  sums.started = Clock::now();
}

void HostShardGroup::finish_sums() {
  const Sums sums = sums_under_way_.front();
  sums_under_way_.pop_front();
  const Clock::time_point wanted = Clock::now();
  quantised_sums_ ? quantised_sums_->finish(sums.last, deadline()) : sums_.finish(sums.last, deadline());
  transport_.within_actions().data +=
      time_of({.begun = sums.begun,
               .started = sums.started,
               .wanted = wanted,
               .ended = Clock::now(),
               .arrived = quantised_sums_ ? quantised_sums_->last_arrival() : sums_.last_arrival()});
}

}  // namespace plumb::exec
