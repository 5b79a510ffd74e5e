// Reads a model from any file that describes one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// A YAML file with a `model:` block, a model block alone, or a Hugging Face config.json. Throws InputError with file,
// line and column.
[[nodiscard]] Model read_model(const std::filesystem::path& path);

// What a reader of the model should know that its shapes do not say, a sentence each: of a config.json what is left out
// of it and what is assumed; of others nothing. Throws as `read_model` does.
[[nodiscard]] std::vector<std::string> model_remarks(const std::filesystem::path& path);

// Whether a map has a model's keys, a Hugging Face config's or those of plumb's own block.
[[nodiscard]] bool looks_like_model(const YamlValue& file);

}  // namespace plumb
