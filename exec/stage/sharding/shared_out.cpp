#include "exec/stage/sharding/shared_out.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace plumb::exec {

void share_out_value(Weight& weight, const StateShard& shard) {
  weight.shape = weight.value.sizes().vec();
  weight.own_value = part_of(weight.value, shard).clone();
  weight.value.reset();
}

void share_out_gradient(Weight& weight, const StateShard& shard) {
  weight.shape = weight.gradient.sizes().vec();
  weight.own_gradient = at::zeros_like(part_of(weight.gradient, shard));
  weight.gradient.reset();
}

void make_whole(Weight& weight, const StateShard& shard) {
  const c10::NoGradGuard no_grad;
  weight.value = at::empty(weight.shape, weight.own_value.options());
  part_of(weight.value, shard).copy_(weight.own_value);
}

}  // namespace plumb::exec
