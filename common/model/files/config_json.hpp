// Reader of Hugging Face config.json files; a field that may change shapes and is not understood is an error.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Reads the language model of a multimodal file, `text_config`. Throws InputError with file, line and column.
[[nodiscard]] Model read_config_json(const std::filesystem::path& path);
[[nodiscard]] Model read_config_json(const YamlValue& file);

// Returns one sentence for each part that is left out although it takes time or parameters.
[[nodiscard]] std::vector<std::string> config_remarks(const YamlValue& file);

// Tells whether the model is the language model of a multimodal file.
[[nodiscard]] bool is_text_part(const Model& model);

// Row of the reference page's table of families.
struct FamilyRow {
  std::vector<std::string> model_types = {};
  bool strict = false;  // head size and KV heads must be in the file
  std::string read_as = {};
  std::string left_out = {};
  std::string runs = {};                // on LibTorch: "yes", or a condition
  std::vector<std::string> lacks = {};  // features that plumb cannot state; empty if the family is read
};

// All families, those that are read first.
[[nodiscard]] std::vector<FamilyRow> config_family_rows();

// Throws InputError if trained weights would mean something else here: the file asks for arithmetic that a run does not
// compute (YaRN, softcapping, quantised weights), or leaves out a number whose default differs between transformers and
// plumb. Errors name `where`.
void require_computed(const HuggingFaceConfig& config, const std::string& where);

}  // namespace plumb
