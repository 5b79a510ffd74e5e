// What W gathers again is gathered once, in W, and goes with the last product that reads it.
#include "exec/stage/primitives/kept_part.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "exec/stage/primitives/operations.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

WeightPtr weight_of(const at::Tensor& value) {
  auto weight = c10::make_intrusive<Weight>();
  weight->value = value;
  weight->gradient = at::zeros_like(value);
  return weight;
}

}  // namespace

TEST_CASE("products keep a part from F to W, gather it in W once, and free what was gathered behind the last of them") {
  const at::Tensor whole = at::arange(24, at::kFloat).view({1, 4, 6});
  int gathers = 0;
  at::Tensor seen;  // so that its owners can be counted
  KeptPartPtr part = c10::make_intrusive<KeptPart>([&, own = whole.narrow(1, 0, 2).clone()] {
    ++gathers;
    seen = at::cat({own, whole.narrow(1, 2, 2)}, 1);
    return seen;
  });
  const auto queue = c10::make_intrusive<WeightQueue>();
  const WeightPtr first = weight_of(at::ones({3, 6}));
  const WeightPtr second = weight_of(at::ones({5, 6}));
  std::vector<int> gathers_at;
  std::vector<std::size_t> owners_at;
  const auto look = [&] {
    gathers_at.push_back(gathers);
    owners_at.push_back(seen.defined() ? seen.use_count() : 0);
  };
  at::Tensor leaf = whole.clone().requires_grad_();
  {
    const at::Tensor y = linear(leaf, first, {}, queue, part).sum() + linear(leaf, second, {}, queue, part).sum();
    part.reset();
    torch::autograd::backward({y}, {});
  }
  CHECK(gathers == 0);
  queue->push(look);
  queue->run();
  CHECK(gathers_at == std::vector<int>{1});
  CHECK(owners_at == std::vector<std::size_t>{1});  // the test alone
  const at::Tensor sums = whole.sum(at::IntArrayRef{0, 1});
  for (const WeightPtr& weight : {first, second}) CHECK(at::equal(weight->gradient, sums.expand_as(weight->value)));
}
