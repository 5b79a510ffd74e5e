#include "exec/run/weight_gathering.hpp"

#include <vector>

#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/stream_bucket.hpp"

namespace plumb::exec {

namespace {

// All weights of a stage have one type.
Bytes gather_on_stream(const std::vector<Stage::StoredWeight>& weights, Transport& world, Device& device,
                       std::span<const int> group) {
  std::vector<CollectiveValue> values;
  ElementType type = ElementType::fp32;
  for (const Stage::StoredWeight& weight : weights) {
    values.push_back({.data = weight.bytes.data(), .count = weight.bytes.size() / weight.element_bytes});
    if (weight.element_bytes == 2) type = ElementType::bf16;
  }
  return move_bucket(world, device, {.kind = Collective::all_gather, .group = group, .type = type, .bucket = values});
}

}  // namespace

Bytes gather_weights(Stage& stage, Transport& world, Device& device, std::span<const int> group,
                     Clock::time_point deadline) {
  if (device.is_asynchronous()) return gather_on_stream(stage.stored_weights(), world, device, group);
  Bytes gathered;
  Collectives collectives(world);
  for (const Stage::StoredWeight& weight : stage.stored_weights()) {
    collectives.all_gather(group, equal_parts(weight.bytes, group.size(), weight.element_bytes), deadline);
    gathered += Bytes{static_cast<std::int64_t>(weight.bytes.size())};
  }
  return gathered;
}

}  // namespace plumb::exec
