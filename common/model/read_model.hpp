// Reads a model from any file that describes one.
#pragma once

#include <filesystem>

#include "common/model/model.hpp"

namespace plumb {

// A YAML file with a `model:` block, a model block alone, or a Hugging Face config.json. Throws InputError with file,
// line and column.
[[nodiscard]] Model read_model(const std::filesystem::path& path);

}  // namespace plumb
