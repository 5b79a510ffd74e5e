#include "common/cost/shard_moves.hpp"

#include "common/cost/block_quantisation.hpp"
#include "common/cost/device_time.hpp"
#include "common/cost/of_others.hpp"

namespace plumb {
namespace {

double real(Bytes bytes) { return static_cast<double>(bytes.value); }

void begin_later(CollectivePlan& plan, Seconds by) {
  plan.phases.front().latency += by;
  plan.phases.front().time += by;
}

double in_gather(const DataLayout& data, ElementType type, double bytes) {
  return data.quantized_weights ? quantised(bytes, type, quantised_weight_bits) : bytes;
}

// What travels of one weight or gradient, all parts of it.
double travelling(const Layout& layout, ElementType type, Bytes whole, bool is_quantised, int bits) {
  if (!is_quantised) return real(whole);
  return real(quantised_in_parts(whole.value / element_bytes(type), state_shards(layout), bits));
}

}  // namespace

CollectivePlan ShardMoves::gathering(Bytes weights) const {
  const double whole = real(weights);
  const double moved = in_gather(data_, types_.weights, whole);
  CollectivePlan plan = fastest_collective(machine_, Collective::all_gather, moved, groups_.all);
  if (plan.count == 0) return plan;
  const DeviceProfile& device = machine_.device;
  if (data_.quantized_weights) {
    begin_later(plan, stream_time(device, (whole + moved) / groups_.all.ranks) + stream_time(device, moved + whole));
  }
  if (data_.secondary_shard > 0) begin_later(plan, stream_time(device, 2 * whole / data_.secondary_shard));
  return plan;
}

CollectivePlan ShardMoves::gathering_again(Bytes weights) const {
  if (data_.secondary_shard == 0) return gathering(weights);
  CollectivePlan plan = fastest_collective(machine_, Collective::all_gather, real(weights), groups_.inside);
  for (int i = 0; i < plan.count; ++i) plan.phases.at(static_cast<std::size_t>(i)).among = Among::inside;
  return plan;
}

CollectivePhase ShardMoves::exchange(double bytes, ElementType type, const GroupPlacement& group) const {
  const double moved = quantised(bytes, type, quantised_gradient_bits);
  CollectivePlan plan = fastest_collective(machine_, Collective::all_to_all, moved, group);
  const double elements = bytes / static_cast<double>(element_bytes(type));
  const double sums = elements * static_cast<double>(element_bytes(ElementType::fp32)) / group.ranks;
  begin_later(plan, stream_time(machine_.device, bytes + moved) + stream_time(machine_.device, moved + sums));
  return plan.phases.front();
}

CollectivePlan ShardMoves::reduction(Bytes gradients) const {
  const double whole = real(gradients);
  if (data_.quantized_gradients == 0 || groups_.all.ranks <= 1) {
    return fastest_collective(machine_, types_.reduction, whole, groups_.all);
  }
  const int inside = data_.quantized_gradients;
  CollectivePlan plan;
  const auto add = [&](CollectivePhase phase, Among among) {
    phase.among = among;
    plan.phases.at(static_cast<std::size_t>(plan.count++)) = phase;
  };
  if (inside == 1 || inside == groups_.all.ranks) {
    add(exchange(whole, types_.gradients, groups_.all), Among::all);
    return plan;
  }
  add(exchange(whole, types_.gradients, groups_.inside), Among::inside);
  const double elements = whole / static_cast<double>(element_bytes(types_.gradients));
  const double sums = elements * static_cast<double>(element_bytes(ElementType::fp32)) / inside;
  add(exchange(sums, ElementType::fp32, groups_.across), Among::across);
  return plan;
}

double received_in_gather(const Layout& layout, ElementType type, Bytes weights) {
  const bool is_quantised = layout.data.quantized_weights;
  return of_others(travelling(layout, type, weights, is_quantised, quantised_weight_bits), state_shards(layout));
}

double received_in_second_gather(const Layout& layout, ElementType type, Bytes weights) {
  if (layout.data.secondary_shard == 0) return received_in_gather(layout, type, weights);
  return of_others(real(weights), layout.data.secondary_shard);
}

double received_in_reduction(const Layout& layout, ElementType type, Bytes gradients) {
  const bool is_quantised = layout.data.quantized_gradients > 0;
  return of_others(travelling(layout, type, gradients, is_quantised, quantised_gradient_bits), state_shards(layout));
}

}  // namespace plumb
