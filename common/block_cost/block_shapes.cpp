#include "common/block_cost/block_shapes.hpp"

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

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

// A planner asks for the same placements of each of its candidates. Of one thread, of the model that it asked for last.
class Placements {
 public:
  std::shared_ptr<const PlacedBlock> of(const Model& model, std::size_t block, const TensorLayout& tensor,
                                        const Tokens& tokens) {
    constexpr std::size_t most = 512;
    if (placed_.size() >= most || !(model == model_)) {
      placed_.clear();
      model_ = model;
    }
    std::shared_ptr<const PlacedBlock>& placed =
        placed_[{block, tensor.degree, tensor.kind, tensor.depth, tensor.sequence_parallel, tensor.asynchronous,
                 tokens.sequences, tokens.sequence}];
    if (!placed) placed = std::make_shared<const PlacedBlock>(place_block(model, block, tensor, tokens));
    return placed;
  }

 private:
  using Key = std::tuple<std::size_t, int, TensorKind, int, bool, bool, std::int64_t, std::int64_t>;

  Model model_;
  std::map<Key, std::shared_ptr<const PlacedBlock>> placed_;
};

}  // namespace

BlockShapes shapes_of_block(const Scenario& scenario, std::size_t block, const OperationContext& context) {
  const std::optional<Lora>& lora = scenario.training.lora;
  BlockShapes shapes = shapes_of_block(scenario.model, block, context);
  thread_local Placements placements;
  shapes.placed = placements.of(scenario.model, block, scenario.layout.tensor,
                                {.sequences = scenario.training.microbatch, .sequence = context.sequence});
  if (!lora) return shapes;
  shapes.made = shapes.operations;
  shapes.operations =
      with_adapters(std::move(shapes.operations), *lora, static_cast<double>(element_bytes(context.activations)),
                    gradient_goes_below(scenario.model, lora, block));
  shapes.parameters = with_adapters(std::move(shapes.parameters), lora);
  return shapes;
}

}  // namespace plumb
