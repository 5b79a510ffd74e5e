// Window and causality are those of flash_api.cpp: a query's place is so that the last query's is the last key; −1 or
// none is no bound. What it refuses is refused here too. Boxed, since the list of arguments has grown with versions.
#include "tests/exec/stage/flash_on_host.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <vector>

namespace plumb::exec::test {
namespace {

FlashCalls calls;

struct Given {
  at::Tensor query, key, value;  // as given
  double scale = 0;
  at::Tensor hidden;  // [queries, keys]
};

void require_inputs(const Given& given) {
  const at::Tensor* const all[] = {&given.query, &given.key, &given.value};
  for (const at::Tensor* const x : all) {
    TORCH_CHECK(x->scalar_type() == at::kHalf || x->scalar_type() == at::kBFloat16, "a type of 16 bits");
    TORCH_CHECK(x->stride(-1) == 1 && x->size(-1) % 8 == 0 && x->size(-1) <= 256, "heads of multiples of 8 up to 256");
  }
  TORCH_CHECK(given.query.size(2) % given.key.size(2) == 0, "heads of keys divide those of queries");
}

// Where the arguments' named part begins: scale, window_size_left, window_size_right.
Given given_of(const std::vector<at::IValue>& arguments, std::size_t first, std::size_t named, bool causal) {
  Given given{.query = arguments[first].toTensor(),
              .key = arguments[first + 1].toTensor(),
              .value = arguments[first + 2].toTensor(),
              .hidden = {}};
  require_inputs(given);
  given.scale = arguments[named].toOptional<double>().value_or(1 / std::sqrt(given.query.size(-1)));
  std::int64_t left = arguments[named + 1].toOptional<std::int64_t>().value_or(-1);
  std::int64_t right = arguments[named + 2].toOptional<std::int64_t>().value_or(-1);
  if (causal) right = 0;
  const std::int64_t queries = given.query.size(1);
  const std::int64_t keys = given.key.size(1);
  const at::Tensor place = at::arange(queries).unsqueeze(1) + (keys - queries);
  const at::Tensor key = at::arange(keys).unsqueeze(0);
  given.hidden = at::zeros({queries, keys}, at::kBool);
  if (right >= 0) given.hidden.logical_or_(key.gt(place + right));
  if (left >= 0) given.hidden.logical_or_(key.lt(place - left));
  return given;
}

at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kDouble).repeat_interleave(heads / x.size(2), 2).transpose(1, 2);
}

at::Tensor scores(const Given& given) {
  const std::int64_t heads = given.query.size(2);
  return (at::matmul(by_head(given.query, heads), by_head(given.key, heads).transpose(-1, -2)) * given.scale)
      .masked_fill(given.hidden, -HUGE_VAL);
}

void forward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  ++calls.forward;
  TORCH_CHECK((*stack)[7].toDouble() == 0 && (*stack)[3].isNone(), "no dropout, no ragged batch");
  const Given given = given_of(*stack, 0, 10, (*stack)[8].toBool());
  const at::Tensor score = scores(given);
  const at::Tensor log_sum = at::logsumexp(score, -1);
  const at::Tensor p = (score - log_sum.unsqueeze(-1)).exp();
  const at::Tensor out = at::matmul(p, by_head(given.value, given.query.size(2))).transpose(1, 2);
  stack->clear();
  for (const at::Tensor& made : {out.to(given.query.scalar_type()).contiguous(), log_sum.to(at::kFloat), at::empty({2}),
                                 at::empty({0}), at::empty({0})}) {
    stack->emplace_back(made);
  }
}

at::Tensor summed(const at::Tensor& gradient, const at::Tensor& like) {
  return gradient.transpose(1, 2).unflatten(2, {like.size(2), -1}).sum(3).to(like.scalar_type());
}

void backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  ++calls.backward;
  const Given given = given_of(*stack, 1, 14, (*stack)[11].toBool());
  const std::int64_t heads = given.query.size(2);
  const at::Tensor log_sum = (*stack)[5].toTensor();
  TORCH_CHECK(log_sum.is_contiguous() && log_sum.scalar_type() == at::kFloat &&
                  log_sum.sizes() == at::IntArrayRef({given.query.size(0), heads, given.query.size(1)}),
              "a sum for each head and query, without gaps");
  const at::Tensor dy = (*stack)[0].toTensor();
  TORCH_CHECK(dy.scalar_type() == given.query.scalar_type(), "gradients of the queries' type");
  const at::Tensor gradient = by_head(dy, heads);
  const at::Tensor out = by_head((*stack)[4].toTensor(), heads);
  const at::Tensor p = (scores(given) - log_sum.unsqueeze(-1)).exp();
  const at::Tensor ds =
      p * (at::matmul(gradient, by_head(given.value, heads).transpose(-1, -2)) - (gradient * out).sum(-1, true)) *
      given.scale;
  const at::Tensor dquery = at::matmul(ds, by_head(given.key, heads)).transpose(1, 2).to(dy.scalar_type());
  const at::Tensor dkey = summed(at::matmul(ds.transpose(-1, -2), by_head(given.query, heads)), given.key);
  const at::Tensor dvalue = summed(at::matmul(p.transpose(-1, -2), gradient), given.value);
  stack->clear();
  for (const at::Tensor& made : {dquery, dkey, dvalue}) stack->emplace_back(made);
}

}  // namespace

FlashCalls flash_calls() { return calls; }

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&forward>());
  m.impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&backward>());
}

}  // namespace plumb::exec::test
