// Reads what a training system does from YAML.
#pragma once

#include "common/base/yaml.hpp"
#include "common/cost/software.hpp"

namespace plumb {

// A block with the facts of `Software` as keys, all optional but name and source. Over a `base`, these are optional
// too. Throws InputError with file, line and column.
[[nodiscard]] Software read_software(const YamlValue& block);
[[nodiscard]] Software read_software(const YamlValue& block, Software base);

}  // namespace plumb
