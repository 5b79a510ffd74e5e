#include "common/scenario/vocabulary_fit.hpp"

#include <string>

namespace plumb {

std::optional<InputError> vocabulary_misfit(const Model& model, const Layout& layout) {
  if (layout.vocabulary_barriers == 0) return std::nullopt;
  if (layout.pipeline < 2) {
    return InputError("layout", "a vocabulary is divided over at least two ranks of a pipeline, not one",
                      "a larger pipeline degree, or a layout without vocabulary");
  }
  const std::int64_t tensor = layout.tensor.degree;
  if (model.vocabulary % (layout.pipeline * tensor) == 0) return std::nullopt;
  const std::string over = std::to_string(layout.pipeline) + " pipeline ranks";
  const std::string each = tensor > 1 ? " of " + std::to_string(tensor) + " tensor ranks each" : "";
  return InputError("layout",
                    "a vocabulary of " + std::to_string(model.vocabulary) + " does not divide over " + over + each,
                    std::string("another pipeline ") + (tensor > 1 ? "or tensor " : "") +
                        "degree, or a model whose vocabulary is padded");
}

std::optional<InputError> barrier_misfit(const Schedule& schedule, const Layout& layout) {
  if (schedule.vocabulary_barriers == layout.vocabulary_barriers) return std::nullopt;
  return InputError("schedule",
                    schedule.name + " has " + std::to_string(schedule.vocabulary_barriers) +
                        " barriers of a vocabulary over the pipeline, the layout " +
                        std::to_string(layout.vocabulary_barriers),
                    "layout: {vocabulary: {barriers: …}} as the schedule has them, or another schedule");
}

}  // namespace plumb
