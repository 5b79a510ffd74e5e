#include "common/block_cost/block_shapes.hpp"

#include <optional>

#include "common/model/divided_vocabulary.hpp"
#include "common/model/lora.hpp"

namespace plumb {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

BlockShapes shapes_of_block(const Model& model, std::size_t block, const OperationContext& context) {
  if (block == 0)
    return {.operations = embedding_operations(model, context), .parameters = embedding_parameters(model)};
  if (block <= model.layers.size()) {
    return {.operations = layer_operations(model, block - 1, context),
            .parameters = layer_parameters(model, block - 1)};
  }
  BlockShapes head{.operations = head_operations(model, context), .parameters = final_norm_parameters(model)};
  append(head.parameters, head_parameters(model));
  append(head.parameters, mtp_parameters(model));
  append(head.operations, mtp_operations(model, context));
  return head;
}

}  // namespace

BlockShapes shapes_of_block(const Scenario& scenario, std::size_t block, const OperationContext& context) {
  std::optional<Model> beside_parts;
  if (scenario.layout.vocabulary_barriers > 0) beside_parts = without_vocabulary(scenario.model);
  const Model& model = beside_parts ? *beside_parts : scenario.model;
  const std::optional<Lora>& lora = scenario.training.lora;
  BlockShapes shapes = shapes_of_block(model, block, context);
  shapes.placed = place_block(model, block, scenario.layout.tensor,
                              {.sequences = scenario.training.microbatch, .sequence = context.sequence});
  if (!lora) return shapes;
  shapes.made = shapes.operations;
  shapes.operations =
      with_adapters(std::move(shapes.operations), *lora, static_cast<double>(element_bytes(context.activations)),
                    gradient_goes_below(model, lora, block));
  shapes.parameters = with_adapters(std::move(shapes.parameters), lora);
  return shapes;
}

}  // namespace plumb
