#include "exec/stage/tensor/vocabulary.hpp"

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/vocabulary/local_indices.hpp"
#include "exec/stage/vocabulary/part_softmax.hpp"

namespace plumb::exec {
namespace {

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
    PartLogits part = part_logits(own_copy(logits.reshape({-1, logits.size(-1)}), wide_type(logits.scalar_type())),
                                  targets, first_column);
    const at::Tensor all = statistics.group->joined_statistics(part.statistics, statistics.forward);
    context->save_for_backward({log_softmax(part, all), part.targets.index, part.targets.mine});
    context->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    context->saved_data["sizes"] = logits.sizes().vec();
    return mean_loss(all);
  }

  // (softmax − one-hot) / rows, made in place of the kept logarithms.
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor scale = output_gradients[0] / static_cast<double>(saved[0].size(0));
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradient_of_logits(saved[0], {saved[1], saved[2]}, scale)
                .to(type)
                .view(context->saved_data["sizes"].toIntVector()),
            Variable(), Variable(), Variable()};
  }
};

}  // namespace

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
