// Reads what a training system does from YAML.
#pragma once

#include "common/base/document/field.hpp"
#include "common/base/document/yaml.hpp"
#include "common/cost/software.hpp"

namespace plumb {

// Table of its fields.
[[nodiscard]] const FieldBlock& software_block();

// A block with the facts of `Software` as keys, all optional but name and source. Left out they are as in the struct
// but `composed`, which is false: the struct's true is a fact of plumb-exec, and what blocks describe runs kernels.
// Over a `base`, all are optional, and left out as there. Throws InputError with file, line and column.
[[nodiscard]] Software read_software(const YamlValue& block);
[[nodiscard]] Software read_software(const YamlValue& block, Software base);

}  // namespace plumb
