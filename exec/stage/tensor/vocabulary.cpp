#include "exec/stage/tensor/vocabulary.hpp"

#include "exec/stage/primitives/autograd.hpp"

namespace plumb::exec {
namespace {

constexpr std::int64_t row_chunks = 8;

// Token ids have no gradient, so it takes an anchor. I moves nothing: W alone reads the gradient.
struct EmbedPart : Function<EmbedPart> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const at::Tensor& tokens,
                          const WeightPtr& table, std::int64_t first_row, const CrossingPtr& exit,
                          const WeightQueuePtr& queue) {
    keep(context, "exit", exit);
    const auto [index, mine] = local_indices(tokens, first_row, table->value.size(0));
    context->save_for_backward({index, mine});
    keep(context, "table", table);
    keep(context, "queue", queue);
    return crossed(at::embedding(table->value, index).mul_(mine.unsqueeze(-1)), exit);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto table = kept<Weight>(context, "table");
    const KeptPartPtr part = kept_part(output_gradients[0], kept<Crossing>(context, "exit"));
    const at::Tensor dy = part ? at::Tensor() : output_gradients[0];
    kept<WeightQueue>(context, "queue")->push([index = saved[0], mine = saved[1], part, dy, table] {
      const at::Tensor& all = part ? part->gathered() : dy;
      const at::Tensor wide = all.to(table->gradient.scalar_type()).mul(mine.unsqueeze(-1));
      table->gradient.index_add_(0, index.flatten(), rows(wide));
    });
    return {Variable(), Variable(), Variable(), Variable(), Variable(), Variable()};
  }
};

struct AddPositions : Function<AddPositions> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& positions,
                          std::int64_t first_token, const WeightQueuePtr& queue) {
    keep(context, "positions", positions);
    keep(context, "queue", queue);
    context->saved_data["first"] = first_token;
    return x + positions->value.narrow(0, first_token, x.size(1));
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto positions = kept<Weight>(context, "positions");
    const std::int64_t first = context->saved_data["first"].toInt();
    const at::Tensor& dy = output_gradients[0];
    kept<WeightQueue>(context, "queue")->push([positions, dy, first] {
      const at::Tensor wide = dy.to(positions->gradient.scalar_type());
      positions->gradient.narrow(0, first, dy.size(1)).add_(wide.sum(0));
    });
    return {dy, Variable(), Variable(), Variable()};
  }
};

struct DividedCrossEntropy : Function<DividedCrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& logits, const at::Tensor& targets,
                          std::int64_t first_column, const Statistics& statistics) {
    at::Tensor wide = own_copy(logits.reshape({-1, logits.size(-1)}), wide_type(logits.scalar_type()));
    const auto [index, mine] = local_indices(targets.reshape({-1, 1}), first_column, logits.size(-1));
    const at::Tensor largest = std::get<0>(wide.max(1, /*keepdim=*/true));
    std::vector<at::Tensor> sums;  // some rows at a time, so that there are no two of it
    const std::vector<at::Tensor> largest_of = largest.chunk(row_chunks);
    for (const at::Tensor& some : wide.chunk(row_chunks)) {
      sums.push_back((some - largest_of[sums.size()]).exp_().sum(1, true));
    }
    const at::Tensor all = statistics.group->joined_statistics(
        at::cat({largest, at::cat(sums), wide.gather(1, index).mul_(mine)}, 1), statistics.forward);
    const at::Tensor log_sum = all.narrow(1, 1, 1).log().add_(all.narrow(1, 0, 1));
    context->save_for_backward({wide.sub_(log_sum), index, mine});
    context->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    context->saved_data["sizes"] = logits.sizes().vec();
    return (all.narrow(1, 2, 1) - log_sum).mean().neg_();
  }

  // (softmax − one-hot) / rows, made in place of the kept logarithms.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient = saved[0].exp_();
    gradient.scatter_add_(1, saved[1], saved[2].to(gradient.scalar_type()).neg_());
    gradient.mul_(output_gradients[0] / static_cast<double>(gradient.size(0)));
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradient.to(type).view(context->saved_data["sizes"].toIntVector()), Variable(), Variable(), Variable()};
  }
};

}  // namespace

LocalIndices local_indices(const at::Tensor& of_vocabulary, std::int64_t first, std::int64_t count) {
  const at::Tensor shifted = of_vocabulary - first;
  const at::Tensor mine = shifted.ge(0).logical_and_(shifted.lt(count));
  return {.index = shifted.mul_(mine), .mine = mine};
}

at::Tensor embed_part(const at::Tensor& tokens, const WeightPtr& table, std::int64_t first_row, const CrossingPtr& exit,
                      const WeightQueuePtr& queue) {
  return EmbedPart::apply(anchor_of(*table, table->is_trained()), tokens, table, first_row, exit, queue);
}

at::Tensor add_positions(const at::Tensor& x, const WeightPtr& positions, std::int64_t first_token,
                         const WeightQueuePtr& queue) {
  return AddPositions::apply(x, positions, first_token, queue);
}

at::Tensor divided_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first_column,
                                 const Statistics& statistics) {
  return DividedCrossEntropy::apply(logits, targets, first_column, statistics);
}

}  // namespace plumb::exec
