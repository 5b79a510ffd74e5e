// Numbers that a vocabulary over the pipeline needs: ranks that divide it, and barriers that the schedule has.
#pragma once

#include <optional>

#include "common/base/error.hpp"
#include "common/layout/layout.hpp"
#include "common/model/model.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

// Problem (where = "layout") of a pipeline of one rank or of ranks that do not divide the vocabulary; nullopt if there
// is none, or the vocabulary is whole.
[[nodiscard]] std::optional<InputError> vocabulary_misfit(const Model& model, const Layout& layout);

// Problem (where = "schedule") of a schedule with another number of barriers than the layout; nullopt if there is none.
[[nodiscard]] std::optional<InputError> barrier_misfit(const Schedule& schedule, const Layout& layout);

}  // namespace plumb
