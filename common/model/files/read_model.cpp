#include "common/model/files/read_model.hpp"

#include "common/model/files/config_json.hpp"
#include "common/model/files/model_block.hpp"

namespace plumb {
namespace {

bool is_hugging_face(const YamlValue& file) {
  for (const char* key : {"model_type", "architectures", "text_config", "num_hidden_layers", "n_layer", "n_embd"}) {
    if (file.find(key)) return true;
  }
  return false;
}

}  // namespace

bool looks_like_model(const YamlValue& file) {
  return is_hugging_face(file) || (file.find("hidden") && file.find("layers"));
}

std::vector<std::string> model_remarks(const std::filesystem::path& path) {
  const YamlValue file = YamlValue::load(path);
  return file.is_map() && is_hugging_face(file) ? config_remarks(file) : std::vector<std::string>{};
}

Model read_model(const std::filesystem::path& path) {
  const YamlValue file = YamlValue::load(path);
  if (!file.is_map()) file.fail("expected a model: keys and values");
  if (is_hugging_face(file)) return read_config_json(path);
  const std::optional<YamlValue> block = file.find("model");
  if (block && !block->is_map()) block->fail("model: expected a block", "name the model's own file instead");
  if (block) file.check_keys({"model"});
  Model model = read_model_block(block ? *block : file);
  if (model.name.empty()) model.name = path.stem().string();
  return model;
}

}  // namespace plumb
