// Reads a model from any file that describes one.
#pragma once

#include <filesystem>

#include "common/base/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// A YAML file with a `model:` block, a model block alone, or a Hugging Face config.json. Throws InputError with file,
// line and column.
[[nodiscard]] Model read_model(const std::filesystem::path& path);

// Whether a map has a model's keys, a Hugging Face config's or those of plumb's own block.
[[nodiscard]] bool looks_like_model(const YamlValue& file);

}  // namespace plumb
