// Which tensor degrees a model allows.
#pragma once

#include "common/layout/layout.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Throws InputError (where = "layout") that names the first shape that the tensor degree does not divide: heads,
// kv_heads (and a recurrence's heads), hidden, the width of an MLP or of an expert.
// Costs of such a layout would count parts of heads.
void require_divisible(const Model& model, const Layout& layout);

}  // namespace plumb
