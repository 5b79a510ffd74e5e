// Reads the model block of a YAML file: sizes, and `layers` written like "linear/dense*3, (sliding/moe, full/moe)*4".
#pragma once

#include "common/base/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Throws InputError with file, line and column for unknown keys, missing sizes, and sizes that do not fit each other.
[[nodiscard]] Model read_model_block(const YamlValue& block);

}  // namespace plumb
