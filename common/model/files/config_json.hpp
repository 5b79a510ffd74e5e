// Reads a model from a Hugging Face config.json, by field; a field that may change shapes and is not understood is an
// error.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Looks inside `text_config` if there is one: the language model of a multimodal file. Throws InputError with file,
// line and column.
[[nodiscard]] Model read_config_json(const std::filesystem::path& path);
[[nodiscard]] Model read_config_json(const YamlValue& file);

// What such a file has that the model lacks and that takes time, and what the model has though the file does not say
// it: a sentence each, of a file that was read.
[[nodiscard]] std::vector<std::string> config_remarks(const YamlValue& file);

// Throws InputError where it asks for something that is planned and yet not computed (positions by YaRN, softcapping,
// quantised weights, …), or leaves out a number of which transformers' default is another than plumb's: a model that
// was trained with it would be another one here. `where` is what errors name.
void require_computed(const HuggingFaceConfig& config, const std::string& where);

}  // namespace plumb
