// Why a vocabulary cannot be divided over a pipeline's ranks: one rule for scenarios, searches and plans.
#pragma once

#include <optional>
#include <string>

#include "common/layout/layout.hpp"
#include "common/model/model.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

struct VocabularyRefusal {
  std::string problem = {};
  std::string hint = {};
};

// What the layout divides its vocabulary beside and cannot yet, or ranks that do not divide it; none: nothing speaks
// against it, or the vocabulary is whole. `has_profile`: costs are measured.
[[nodiscard]] std::optional<VocabularyRefusal> vocabulary_refusal(const Model& model, const Layout& layout,
                                                                  const Training& training, bool has_profile);

// The same of a schedule, which must have as many barriers as the layout, and of a choice's, whose ranks must divide
// the vocabulary if the layout does.
[[nodiscard]] std::optional<VocabularyRefusal> vocabulary_refusal(const Schedule& schedule, const Layout& layout);
[[nodiscard]] std::optional<VocabularyRefusal> vocabulary_refusal(const ScheduleChoice& schedule, const Layout& layout);

}  // namespace plumb
