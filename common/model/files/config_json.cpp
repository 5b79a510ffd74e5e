#include "common/model/files/config_json.hpp"

#include "common/base/document/json.hpp"
#include "common/base/files.hpp"
#include "common/model/files/config_arithmetic.hpp"
#include "common/model/files/config_layers.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

Vision read_vision(ConfigFields& fields) {
  Vision vision = {.image_size = fields.integer({"image_size"}, limits::head_dim),
                   .patch_size = fields.integer({"patch_size"}, limits::head_dim),
                   .channels = fields.integer({"num_channels"}, limits::kernel)};
  if (vision.image_size % vision.patch_size != 0) {
    fields.require({"image_size"}).fail("'image_size' must be a multiple of 'patch_size'");
  }
  const auto labels = fields.find({"id2label"});
  const auto count = fields.optional_integer({"num_labels"}, 1, limits::vocabulary);
  if (!count && !labels) fields.fail("the field 'num_labels' or 'id2label' is missing");
  vision.classes = count ? *count : static_cast<std::int64_t>(labels->keys().size());
  return vision;
}

std::vector<Layer> read_layers(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden) {
  const std::vector<LayerWord> words = read_layer_words(fields, family);
  if (words.empty()) fields.fail("the model has no layers");
  if (words.size() > static_cast<std::size_t>(limits::layers)) fields.fail("the model has more than 10,000 layers");
  const std::vector<Mixer> mixers = read_mixers(fields, family, hidden, words);
  const std::vector<Mlp> mlps = read_mlps(fields, family, hidden, words);
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < words.size(); ++i) {
    layers.push_back(Layer{
        .mixer = mixers[i], .mlp = mlps[i], .norm = family.norm, .norms = family.norms, .parallel = family.parallel});
  }
  return layers;
}

}  // namespace

Model read_config_json(const YamlValue& file) {
  const std::optional<YamlValue> text = file.find("text_config");
  ConfigFields outer(file);
  ConfigFields fields(text ? *text : file);
  const ModelFamily family = read_family(fields);
  Model model;
  model.hidden = fields.integer({"hidden_size", "n_embd", "d_model"}, limits::hidden);
  model.layers = read_layers(fields, family, model.hidden);
  model.final_norm = family.norm;
  model.positions = family.positions;
  model.arithmetic = read_arithmetic(fields, family);
  const Names position_names = {"n_positions", "max_position_embeddings"};
  model.max_positions = fields.optional_integer(position_names, 1, limits::positions).value_or(0);
  model.mtp_modules =
      fields.optional_integer({"num_nextn_predict_layers"}, 0, limits::mtp_modules).value_or(family.mtp_modules);
  const bool tied = outer.flag({"tie_word_embeddings"}, family.tied);
  const bool inner_tied = fields.flag({"tie_word_embeddings"}, tied);
  if (family.vision) {
    model.vision = read_vision(fields);
    model.max_positions = tokens(*model.vision);
    model.head_bias = true;
  } else {
    model.vocabulary = fields.integer({"vocab_size"}, limits::vocabulary);
    model.tied_embeddings = inner_tied;
    model.head_bias = family.name == "gptj";
    if (family.positions == Positions::learned) model.max_positions = fields.integer(position_names, limits::positions);
  }
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "use_bidirectional_attention"}) {
    fields.refuse_if_set(name, "only decoders are described");
  }
  fields.check_all_read();
  require_possible(model, file.place());
  return model;
}

std::vector<std::string> config_remarks(const YamlValue& file) {
  const std::optional<YamlValue> text = file.find("text_config");
  ConfigFields fields(text ? *text : file);
  const ModelFamily family = read_family(fields);
  std::vector<std::string> remarks;
  std::string capping;
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.find({name})) capping += (capping.empty() ? "" : ", ") + std::string(name);
  }
  if (!capping.empty()) {
    remarks.push_back(capping + ": left out, since softcapping has no parameters; its time is not counted");
  }
  if (family.mtp_modules > 0 && !fields.find({"num_nextn_predict_layers"})) {
    const bool one = family.mtp_modules == 1;
    remarks.push_back((one ? "one module" : std::to_string(family.mtp_modules) + " modules") +
                      " of multi-token prediction " + (one ? "is" : "are") + " assumed, as the released weights of " +
                      family.name + " have; num_nextn_predict_layers: 0 in its config.json is without");
  }
  return remarks;
}

namespace {

// None for what YAML takes and JSON does not: it is handed to nobody. A multimodal file has the outer type, whose names
// are other ones than those of the language model inside.
std::optional<HuggingFaceConfig> as_handed_on(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const std::string usual = json.contains("text_config") ? "multimodal" : "llama";
  return HuggingFaceConfig{.model_type = json.value("model_type", usual), .text = to_line(json)};
}

}  // namespace

void require_computed(const HuggingFaceConfig& config, const std::string& where) {
  ConfigFields fields(YamlValue::parse(config.text, where));
  const ModelFamily family = read_family(fields);
  require_computed_as_written(fields, family);
}

Model read_config_json(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  Model model = read_config_json(YamlValue::parse(text, path.string()));
  model.hugging_face = as_handed_on(text);
  const std::string stem = path.stem().string();
  const std::string suffix = ".config";
  const std::string folder = std::filesystem::absolute(path).parent_path().filename().string();
  model.name = stem == "config" ? folder : stem.ends_with(suffix) ? stem.substr(0, stem.size() - suffix.size()) : stem;
  return model;
}

}  // namespace plumb
