#include "tests/exec/run/moving_stage.hpp"

#include <algorithm>

namespace plumb::exec::test {
namespace {

// What the rank at a position of its group gives at an index: whole numbers, whose sums are exact.
float given(std::size_t position, std::size_t index, int salt) {
  return static_cast<float>((position * 7 + index * 3 + static_cast<std::size_t>(salt)) % 23);
}

float expected(Collective kind, Reduction reduction, std::size_t position, std::size_t ranks, std::size_t count,
               std::size_t index, int salt) {
  if (kind == Collective::all_gather) return given(index / count, index % count, salt);
  const std::size_t at = kind == Collective::reduce_scatter ? position * count + index : index;
  float result = given(0, at, salt);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const float next = given(rank, at, salt);
    result = reduction == Reduction::maximum ? std::max(result, next) : result + next;
  }
  return result;
}

}  // namespace

GroupCalls MovingStage::of(ActionKind kind) const {
  GroupCalls calls =
      calls_of(calls_, {kind, number_, no_microbatch});  // buckets are made by whoever hears of gradients
  if (change_) change_(kind, calls);
  return calls;
}

Payload MovingStage::around(ActionKind kind, const std::function<Payload()>& work) {
  const GroupCalls calls = of(kind);
  const std::size_t half = calls.size() / 2;
  for (std::size_t i = 0; i < half; ++i) make(*calls[i]);
  Payload made = work();
  for (std::size_t i = half; i < calls.size(); ++i) make(*calls[i]);
  return made;
}

void MovingStage::sum_once(ActionKind kind) {
  if (std::exchange(summed_, true)) return;
  for (const auto& call : of(kind)) {
    if (!call->open) make(*call);
  }
}

void MovingStage::make(const GroupCall& call) {
  const std::vector<int>& group = call.of.ranks;
  const auto position = static_cast<std::size_t>(std::ranges::find(group, transport_.rank()) - group.begin());
  const std::size_t ranks = group.size();
  const std::size_t more = call.kind == Collective::reduce_scatter ? ranks : 1;
  const std::size_t gives = call.count * more;
  const std::size_t gets = call.count * (call.kind == Collective::all_gather ? ranks : 1);
  const Payload input = device_.allocate(gives * sizeof(float));
  const Payload output = device_.allocate(gets * sizeof(float));
  AsyncStream& compute = device_.compute();
  const int salt = ++salt_;
  compute.run([values = reinterpret_cast<float*>(input.data), gives, position, salt] {
    for (std::size_t i = 0; i < gives; ++i) values[i] = given(position, i, salt);
  });
  compute.wait(transport_.collective({.kind = call.kind,
                                      .reduction = call.reduction,
                                      .use = call.of.use,
                                      .group = group,
                                      .input = input.data,
                                      .output = output.data,
                                      .count = call.count,
                                      .type = ElementType::fp32,
                                      .ready = compute.record()}));
  compute.run([wrong = wrong_, values = reinterpret_cast<const float*>(output.data), gets, position, ranks, salt,
               kind = call.kind, reduction = call.reduction, count = call.count] {
    for (std::size_t i = 0; i < gets; ++i) {
      const float wanted = expected(kind, reduction, position, ranks, count, i, salt);
      if (values[i] != wanted) ++*wrong;
    }
  });
}

}  // namespace plumb::exec::test
