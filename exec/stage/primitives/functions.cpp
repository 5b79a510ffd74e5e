// Each function is one autograd function that keeps as little as its backward can do with.
#include "exec/stage/primitives/functions.hpp"

#include <algorithm>
#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

struct SwiGlu : Function<SwiGlu> {
  static Variable forward(AutogradContext* context, const Variable& gate, const Variable& up) {
    context->save_for_backward({gate, up});
    return primitives_for(gate).swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    auto [dgate, dup] = primitives_for(saved[0]).swiglu_backward(output_gradients[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

struct Rotate : Function<Rotate> {
  static Variable forward(AutogradContext* context, const Variable& x, const at::Tensor& cosine, const at::Tensor& sine,
                          bool interleaved) {
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    context->saved_data["interleaved"] = interleaved;
    return primitives_for(x).rotate(x, {.cosine = cosine, .sine = sine, .interleaved = interleaved}, false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const RotaryTables tables = {.cosine = context->saved_data["cosine"].toTensor(),
                                 .sine = context->saved_data["sine"].toTensor(),
                                 .interleaved = context->saved_data["interleaved"].toBool()};
    const at::Tensor& dy = output_gradients[0];
    return {primitives_for(dy).rotate(dy, tables, true), Variable(), Variable(), Variable()};
  }
};

AttentionView view_between(const Sight& sight, const at::Tensor& query, const at::Tensor& key) {
  return view_of(sight, query.size(1), key.size(1), query);
}

// Keys and values are kept as they are.
struct SoftmaxAttentionFunction : Function<SoftmaxAttentionFunction> {
  static Variable forward(AutogradContext* context, const Variable& query, const Variable& key, const Variable& value,
                          const Sight& sight, bool redone) {
    auto [out, log_sum] = attend(query, key, value, view_between(sight, query, key));
    variable_list saved{query, key, value};
    if (!redone) saved.insert(saved.end(), {out, log_sum});
    context->save_for_backward(std::move(saved));
    context->saved_data["causal"] = sight.causal;
    context->saved_data["ahead"] = sight.ahead;
    context->saved_data["window"] = sight.window;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const AttentionView view = view_between({.causal = context->saved_data["causal"].toBool(),
                                             .ahead = context->saved_data["ahead"].toInt(),
                                             .window = context->saved_data["window"].toInt()},
                                            saved[0], saved[1]);
    const Attended made =
        saved.size() == 3 ? attend(saved[0], saved[1], saved[2], view) : Attended{.out = saved[3], .log_sum = saved[4]};
    auto [dquery, dkey, dvalue] = attend_backward(output_gradients[0], saved[0], saved[1], saved[2], made, view);
    return {dquery, dkey, dvalue, Variable(), Variable()};
  }
};

// How a slice's queries see one piece of the keys, whose first key stands `ahead` tokens before the first query. The
// first `queries` of them see any.
struct PieceView {
  std::int64_t queries = 0;
  AttentionView view;
};

PieceView view_of_piece(const at::Tensor& query, const at::Tensor& piece, std::int64_t ahead, std::int64_t window) {
  const std::int64_t keys = piece.size(1);
  const std::int64_t queries = std::min(query.size(1), window - ahead + keys - 1);
  return {.queries = queries,
          .view = view_of({.causal = true, .ahead = ahead, .window = window}, queries, keys, query)};
}

// One piece after the other: softmax over all keys is a mean of those over the pieces, weighted by their sums of
// exponentials (ring attention, arXiv 2310.01889, section 3). So nothing grows with the keys but what is kept.
Attended attend_to_pieces(const at::Tensor& query, at::TensorList keys, at::TensorList values, std::int64_t window) {
  at::Tensor out;
  at::Tensor log_sum;
  std::int64_t ahead = 0;
  for (std::size_t piece = keys.size(); piece-- > 0;) {
    if (piece + 1 < keys.size()) ahead += keys[piece].size(1);
    const PieceView of = view_of_piece(query, keys[piece], ahead, window);
    auto [part, part_sum] = attend(query.narrow(1, 0, of.queries), keys[piece], values[piece], of.view);
    if (!out.defined()) {  // of the slice's own keys, which all queries see
      out = part.to(wide_type(query.scalar_type()));
      log_sum = part_sum;
      continue;
    }
    at::Tensor mean = out.narrow(1, 0, of.queries);
    at::Tensor sum = log_sum.narrow(2, 0, of.queries);
    const at::Tensor both = at::logaddexp(sum, part_sum);
    const auto share = [&](const at::Tensor& part_of) { return (part_of - both).exp_().transpose(1, 2).unsqueeze(-1); };
    mean.mul_(share(sum)).addcmul_(part.to(mean.scalar_type()), share(part_sum));
    sum.copy_(both);
  }
  return {.out = out.to(query.scalar_type()), .log_sum = log_sum};
}

struct SlicedAttentionFunction : Function<SlicedAttentionFunction> {
  static Variable forward(AutogradContext* context, const Variable& query, at::TensorList keys, at::TensorList values,
                          std::int64_t window, bool redone) {
    auto [out, log_sum] = attend_to_pieces(query, keys, values, window);
    variable_list saved{query};
    saved.insert(saved.end(), keys.begin(), keys.end());
    saved.insert(saved.end(), values.begin(), values.end());
    if (!redone) saved.insert(saved.end(), {out, log_sum});
    context->save_for_backward(std::move(saved));
    context->saved_data["window"] = window;
    context->saved_data["redone"] = redone;
    return out;
  }

  // With the sums over all keys, each piece gives its own gradients and its part of the queries'.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& query = saved[0];
    const std::int64_t window = context->saved_data["window"].toInt();
    const bool redone = context->saved_data["redone"].toBool();
    const std::size_t count = (saved.size() - (redone ? 1 : 3)) / 2;
    const at::TensorList all(saved);
    const Attended whole = redone ? attend_to_pieces(query, all.slice(1, count), all.slice(1 + count, count), window)
                                  : Attended{.out = saved[1 + 2 * count], .log_sum = saved[2 + 2 * count]};
    at::Tensor dq = at::zeros_like(query, query.options().dtype(wide_type(query.scalar_type())));
    variable_list gradients(3 + 2 * count);  // of the query, the keys, the values, and two numbers
    std::int64_t ahead = 0;
    for (std::size_t piece = count; piece-- > 0;) {
      const at::Tensor& key = saved[1 + piece];
      const at::Tensor& value = saved[1 + count + piece];
      if (piece + 1 < count) ahead += key.size(1);
      const PieceView of = view_of_piece(query, key, ahead, window);
      const auto seeing = [&](const at::Tensor& x) { return x.narrow(1, 0, of.queries); };
      auto [dquery, dkey, dvalue] =
          attend_backward(seeing(output_gradients[0]), seeing(query), key, value,
                          {.out = seeing(whole.out), .log_sum = whole.log_sum.narrow(2, 0, of.queries)}, of.view);
      seeing(dq).add_(dquery);
      gradients[1 + piece] = dkey;
      gradients[1 + count + piece] = dvalue;
    }
    gradients[0] = dq.to(query.scalar_type());
    return gradients;
  }
};

// In the wide type; of narrower logits in place of their copy.
at::Tensor log_softmax(const at::Tensor& logits) {
  const auto type = wide_type(logits.scalar_type());
  if (type == logits.scalar_type()) return at::log_softmax(logits, -1);
  at::Tensor wide = logits.to(type);
  return at::_log_softmax_out(wide, wide, -1, /*half_to_float=*/false);
}

struct CrossEntropy : Function<CrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& logits, const at::Tensor& targets) {
    const at::Tensor log_probability = log_softmax(logits.reshape({-1, logits.size(-1)}));
    const at::Tensor target = targets.reshape({-1, 1});
    context->save_for_backward({log_probability, target});
    context->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    context->saved_data["sizes"] = logits.sizes().vec();
    return log_probability.gather(1, target).mean().neg_();
  }

  // (softmax − one-hot) / rows, made in place of the kept logarithms.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient = saved[0].exp_();
    gradient.scatter_add_(1, saved[1], at::full_like(saved[1], -1.0, gradient.options()));
    gradient.mul_(output_gradients[0] / static_cast<double>(gradient.size(0)));
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradient.to(type).view(context->saved_data["sizes"].toIntVector()), Variable()};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return SwiGlu::apply(gate, up); }

RotaryTables RotaryTables::narrowed(std::int64_t first, std::int64_t count) const {
  return {.cosine = cosine.narrow(0, first, count), .sine = sine.narrow(0, first, count), .interleaved = interleaved};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTables& tables) {
  return Rotate::apply(x, tables.cosine, tables.sine, tables.interleaved);
}

at::Tensor softmax_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const Sight& sight, bool redone) {
  return SoftmaxAttentionFunction::apply(query, key, value, sight, redone);
}

at::Tensor sliced_attention(const at::Tensor& query, at::TensorList keys, at::TensorList values, std::int64_t window,
                            bool redone) {
  return SlicedAttentionFunction::apply(query, keys, values, window, redone);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return CrossEntropy::apply(logits, targets);
}

}  // namespace plumb::exec
