// Reads the model block of a YAML file: sizes, and `layers` written like "linear/dense*3, (sliding/moe, full/moe)*4".
#pragma once

#include <string>
#include <vector>

#include "common/base/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Throws InputError with file, line and column for unknown keys, missing sizes, and sizes that do not fit each other.
[[nodiscard]] Model read_model_block(const YamlValue& block);

// "a/b*2, (c/d, e/f)*2" → a/b, a/b, c/d, e/f, c/d, e/f. Groups may nest. Throws InputError naming `place` and the
// character in the text, for anything malformed and for more than `max_layers` layers.
[[nodiscard]] std::vector<std::string> expand_layers(const std::string& text, const Place& place);

inline constexpr int max_layers = 10000;

}  // namespace plumb
