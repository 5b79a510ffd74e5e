// What a config.json says of its model's arithmetic, beside shapes. Only config_*.cpp include it.
#pragma once

#include "common/model/files/config_family.hpp"
#include "common/model/files/config_fields.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Numbers that are the usual ones, and those that the file does not have, are none.
[[nodiscard]] Arithmetic read_arithmetic(ConfigFields& fields, const ModelFamily& family);

// Throws InputError where the file asks for something that is not computed although its shapes are known (YaRN, scores
// that are scaled by the layer), or leaves out a number of which transformers' default is another than plumb's: such a
// model can be planned, but weights that were trained for it mean something else here.
void require_computed_as_written(ConfigFields& fields, const ModelFamily& family);

}  // namespace plumb
