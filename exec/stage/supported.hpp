// Which models LibTorch stages run today.
#pragma once

#include "common/model/model.hpp"
#include "common/plan/scenario.hpp"

namespace plumb::exec {

// Throws InputError naming the first layer (or other part of the model) whose kind is not executed yet.
void require_executed(const Model& model, const Training& training);

}  // namespace plumb::exec
