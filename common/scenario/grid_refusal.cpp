#include "common/scenario/grid_refusal.hpp"

#include "common/layout/tensor_grid.hpp"

namespace plumb {

std::optional<GridRefusal> grid_refusal(const Scenario& scenario, const TensorLayout& tensor, std::int64_t microbatch) {
  if (!is_grid(tensor) || tensor.degree == 1) return std::nullopt;
  if (scenario.training.lora) {
    return GridRefusal{"training", "LoRA's adapters cannot be planned in a " + grid_text(tensor) + " yet", "kind: 1d"};
  }
  const auto undivided = undivided_microbatch(tensor, microbatch);
  if (!undivided) return std::nullopt;
  return GridRefusal{"training", *undivided,
                     "microbatch: " + std::to_string(sequences_multiple(tensor)) + ", or a multiple of it"};
}

}  // namespace plumb
