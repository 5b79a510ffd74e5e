#include "exec/stage/sharding/shared_out.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "common/cost/block_quantisation.hpp"
#include "exec/device/clock.hpp"
#include "exec/transport/collectives/quantised_values.hpp"

namespace plumb::exec {

void share_out_value(Weight& weight, const StateShard& shard, bool on_host) {
  const c10::NoGradGuard no_grad;
  const at::Tensor own = part_of(weight.value, shard);
  weight.shape = weight.value.sizes().vec();
  weight.own_on_host = on_host;
  weight.own_value = on_host ? host_tensor(own.sizes(), own.scalar_type()).copy_(own) : own.clone();
  weight.value.reset();
}

void share_out_gradient(Weight& weight, const StateShard& shard) {
  weight.shape = weight.gradient.sizes().vec();
  weight.own_gradient = at::zeros_like(part_of(weight.gradient, shard));
  weight.gradient.reset();
}

void share_out_second_copy(Weight& weight, const StateShard& shard) {
  const IndexRange range = range_of_part(weight.elements(), shard);
  weight.second_value = at::empty({range.end - range.begin}, weight.own_value.options());
}

HostCopies make_whole(Weight& weight, const at::Tensor& part, const StateShard& shard) {
  const c10::NoGradGuard no_grad;
  weight.value = at::empty(weight.shape, part.options());
  const Clock::time_point start = Clock::now();
  part_of(weight.value, shard).copy_(part);
  if (!weight.own_on_host) return {};
  return {.bytes = Bytes{static_cast<std::int64_t>(part.nbytes())},
          .time = seconds_of(Clock::now()) - seconds_of(start)};
}

namespace {

std::span<float> floats_in(const at::Tensor& flat) {
  return {flat.mutable_data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

}  // namespace

void quantise_part(const at::Tensor& part, std::span<std::byte> into) {
  quantise(floats_in(part.to(at::kFloat)), quantised_weight_bits, into);
}

void dequantise_part(std::span<const std::byte> from, const at::Tensor& part) {
  const c10::NoGradGuard no_grad;
  const at::Tensor wide = at::empty({part.numel()}, at::kFloat);
  dequantise(from, quantised_weight_bits, floats_in(wide));
  part.copy_(wide);
}

void round_in_parts(const at::Tensor& whole, int parts) {
  for (int index = 0; index < parts; ++index) {
    const at::Tensor part = part_of(whole, {.index = index, .count = parts});
    std::vector<std::byte> blocks(quantised_size(static_cast<std::size_t>(part.numel()), quantised_weight_bits));
    quantise_part(part, blocks);
    dequantise_part(blocks, part);
  }
}

}  // namespace plumb::exec
