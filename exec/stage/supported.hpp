// Which models and schedules LibTorch stages run today.
#pragma once

#include "common/layout/layout.hpp"
#include "common/model/model.hpp"
#include "common/scenario/scenario.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb::exec {

// Throws InputError naming the first layer (or other part of the model) whose kind is not executed yet.
void require_executed(const Model& model, const Training& training);

// Throws InputError (where = "layout") that names the first shape that the tensor degree does not divide, also of those
// that are planned in uneven parts.
void require_divided(const Model& model, const Training& training, const TensorLayout& tensor);

// Throws InputError where a schedule cuts sequences and the model, its training or the schedule itself does not allow
// it.
void require_slices_executed(const Model& model, const Training& training, const Schedule& schedule);

}  // namespace plumb::exec
