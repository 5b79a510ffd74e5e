// Products of rows sorted by expert, one after the other and by groups, where the host never asks for their sizes.
#include <ATen/ATen.h>

#include <vector>

#include "exec/stage/modules/lora.hpp"
#include "exec/stage/primitives/expert_products.hpp"
#include "exec/stage/primitives/operations.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/kernel_problem.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

// Of four experts the second and the last have no rows.
ExpertRowsPtr some_rows() { return c10::make_intrusive<ExpertRows>(at::tensor({5, 5, 13, 13}, at::kInt)); }

Tensors plain_product(const Tensors& x, const at::Tensor& matrices) {
  return {at::cat({at::matmul(x[0].narrow(0, 0, 5), matrices.select(0, 0).t()),
                   at::matmul(x[0].narrow(0, 5, 8), matrices.select(0, 2).t())})};
}

bool has_groups() {
  const KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  return computes_by_groups(at::empty({1}, at::kBFloat16));
}

AdapterPtr adapter_of(const Weights& weights) {
  const auto adapter = c10::make_intrusive<Adapter>();
  adapter->a = weights[0];
  adapter->b = weights[1];
  adapter->scale = 0.75;
  return adapter;
}

}  // namespace

TEST_CASE("Rows of experts are counted when someone asks") {
  const ExpertRowsPtr rows = some_rows();
  CHECK(rows->experts() == 4);
  CHECK_FALSE(rows->is_counted());
  CHECK(rows->counts() == std::vector<std::int64_t>{5, 0, 8, 0});
  CHECK(rows->is_counted());
}

TEST_CASE("Experts' products are right in each type, and in bf16 the host does not ask how many rows each has") {
  for (const at::ScalarType type : types) {
    ExpertRowsPtr rows;
    require_as_near_as_aten({.inputs = {drawn({13, 24}, 1)},
                             .weights = {drawn({4, 40, 24}, 2) / 5},
                             .plain = [](const Tensors& x, const Tensors& w) { return plain_product(x, w[0]); },
                             .ours =
                                 [&](const Tensors& x, const Weights& w, const WeightQueuePtr& queue) {
                                   rows = some_rows();
                                   return Tensors{expert_linear(x[0], w[0], rows, queue)};
                                 }},
                            type);
    CHECK(rows->is_counted() == !(has_groups() && type == at::kBFloat16));
  }
}

TEST_CASE("Experts' adapters are right in each type, and in bf16 the host does not ask how many rows each has") {
  const at::Tensor base = drawn({4, 40, 24}, 7) / 5;
  for (const at::ScalarType type : types) {
    ExpertRowsPtr rows;
    require_as_near_as_aten({.inputs = {drawn({13, 24}, 1)},
                             .weights = {drawn({4, 8, 24}, 2) / 5, drawn({4, 40, 8}, 3) / 3},
                             .plain =
                                 [&](const Tensors& x, const Tensors& w) {
                                   const at::Tensor rounded = base.to(type).to(x[0].scalar_type());
                                   return plain_product(x, rounded + 0.75 * at::matmul(w[1], w[0]));
                                 },
                             .ours =
                                 [&](const Tensors& x, const Weights& w, const WeightQueuePtr& queue) {
                                   rows = some_rows();
                                   const auto frozen = c10::make_intrusive<Weight>();
                                   frozen->value = base.to(x[0].scalar_type());
                                   return Tensors{adapted_expert_linear(x[0], frozen, adapter_of(w), rows, queue)};
                                 }},
                            type);
    CHECK(rows->is_counted() == !(has_groups() && type == at::kBFloat16));
  }
}

TEST_CASE("Where a device, a width or many experts have no product by groups, they come one after the other") {
  KernelTable table = emulated_kernels();
  const KernelsOnHost kernels(table);
  const auto ones = [](at::IntArrayRef shape) { return at::ones(shape, at::kBFloat16); };
  const auto is_counted = [&](std::int64_t in, std::int64_t out) {
    const ExpertRowsPtr rows = some_rows();
    const at::Tensor y = expert_product(ones({13, in}), ones({4, in, out}), *rows);
    CHECK(y.sum().item<double>() == static_cast<double>(13 * in * out));
    const ExpertRowsPtr of_gradient = some_rows();
    const at::Tensor gradient = at::zeros({4, out, in});
    accumulate_expert_product(gradient, ones({13, out}), ones({13, in}), *of_gradient);
    CHECK(gradient.sum().item<double>() == static_cast<double>(13 * in * out));
    CHECK(of_gradient->is_counted() == rows->is_counted());
    return rows->is_counted();
  };
  CHECK(is_counted(8, 16) == !computes_by_groups(ones({1})));
  CHECK(is_counted(12, 16));
  CHECK(is_counted(16, 12));
  const auto is_counted_among = [&](std::int64_t experts) {
    const ExpertRows rows(at::full({experts}, 2, at::kInt));
    CHECK(expert_product(ones({2, 8}), ones({experts, 8, 8}), rows).sum().item<double>() == 2 * 8 * 8);
    return rows.is_counted();
  };
  CHECK(is_counted_among(1023) == !computes_by_groups(ones({1})));
  CHECK(is_counted_among(1024));
  static int capability = 0;
  table.compute_capability = [] { return capability; };
  for (const int without : {80, 89, 100, 120}) {
    capability = without;
    CHECK(is_counted(8, 16));
  }
}
