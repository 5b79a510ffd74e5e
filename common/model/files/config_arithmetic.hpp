// Arithmetic of a config.json's model, beside its shapes. Only config_*.cpp include it.
#pragma once

#include "common/model/files/config_family.hpp"
#include "common/model/files/config_fields.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Leaves out the usual numbers, and those that the file does not have.
[[nodiscard]] Arithmetic read_arithmetic(ConfigFields& fields, const ModelFamily& family);

// Throws InputError if the file asks for arithmetic that a run does not compute (YaRN, scores scaled by the layer), or
// leaves out a number whose default differs between transformers and plumb. Such a model can be planned, but weights
// that were trained for it mean something else here.
void require_computed_as_written(ConfigFields& fields, const ModelFamily& family);

}  // namespace plumb
