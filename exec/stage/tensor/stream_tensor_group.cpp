#include "exec/stage/tensor/stream_tensor_group.hpp"

#include <ATen/ATen.h>

#include "exec/stage/tensor/scattered_parts.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {
namespace {

std::byte* data_of(const at::Tensor& x) { return static_cast<std::byte*>(x.mutable_data_ptr()); }
std::size_t elements_of(const at::Tensor& x) { return static_cast<std::size_t>(x.numel()); }

// In place.
CollectiveCall all_reduce_of(const at::Tensor& x, Reduction reduction) {
  return {.kind = Collective::all_reduce,
          .reduction = reduction,
          .input = data_of(x),
          .output = data_of(x),
          .count = elements_of(x),
          .type = element_type(x)};
}

}  // namespace

void StreamTensorGroup::run(const std::vector<int>& positions, CollectiveCall call) {
  const std::vector<int> among = ranks_at(positions);
  call.group = among;
  call.use = call.group.size() == ranks().size() ? CommunicatorUse::tensor : CommunicatorUse::tensor_part;
  call.ready = device_.compute().record();
  device_.compute().wait(transport_.collective(call));
}

void StreamTensorGroup::sum_over(const std::vector<int>& positions, const at::Tensor& x) {
  run(positions, all_reduce_of(x, Reduction::sum));
}

at::Tensor StreamTensorGroup::gathered(const at::Tensor& x, const LocalMove& move) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), std::ssize(move.group));
  const at::Tensor all = at::empty(sizes, x.options().requires_grad(false));
  const at::Tensor own = all[place_among(move.group)];
  own.copy_(x.detach());
  run(move.group, {.kind = Collective::all_gather,
                   .input = data_of(own),
                   .output = data_of(all),
                   .count = elements_of(own),
                   .type = element_type(all)});
  return all.movedim(0, move.dimension).flatten(move.dimension, move.dimension + 1);
}

at::Tensor StreamTensorGroup::summed_part(const at::Tensor& x, const LocalMove& move) {
  const ScatteredParts scattered(x, move);
  const at::Tensor parts = scattered.all();
  const at::Tensor sum = at::empty(parts.sizes().slice(1), parts.options());
  run(move.group, {.kind = Collective::reduce_scatter,
                   .input = data_of(parts),
                   .output = data_of(sum),
                   .count = elements_of(sum),
                   .type = element_type(sum)});
  return scattered.as_given(sum);
}

at::Tensor StreamTensorGroup::joined_rows(const at::Tensor& rows, const std::vector<int>& positions) {
  const at::Tensor mine = rows.detach();
  const at::Tensor largest = mine.select(-1, 0).clone(at::MemoryFormat::Contiguous);
  run(positions, all_reduce_of(largest, Reduction::maximum));
  const at::Tensor sum = (mine.select(-1, 0) - largest).exp_().mul_(mine.select(-1, 1));
  const at::Tensor sums = at::stack({sum, mine.select(-1, 2)}, -1);
  run(positions, all_reduce_of(sums, Reduction::sum));
  return at::cat({largest.unsqueeze(-1), sums}, -1);
}

}  // namespace plumb::exec
