#include "common/model/files/config_json.hpp"

#include "common/base/document/json.hpp"
#include "common/base/files.hpp"
#include "common/model/files/config_arithmetic.hpp"
#include "common/model/files/config_lacks.hpp"
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
  // transformers leaves two labels, its default, out of the files that it saves.
  constexpr std::int64_t usual_labels = 2;
  const bool saved = fields.find({"transformers_version"}).has_value();
  if (!count && !labels && !saved) fields.fail("the field 'num_labels' or 'id2label' is missing");
  vision.classes = count ? *count : labels ? static_cast<std::int64_t>(labels->keys().size()) : usual_labels;
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

// Modules of multi-token prediction that the file states.
std::int64_t read_mtp(ConfigFields& fields) {
  const Names names = {"num_nextn_predict_layers", "mtp_num_hidden_layers"};
  const std::int64_t modules = fields.optional_integer(names, 0, limits::mtp_modules).value_or(0);
  for (const char* list : {"mtp_layers_block_type", "mtp_hybrid_override_pattern"}) {
    if (fields.find({list}) && modules > 0) {
      fields.lack(lacks::mtp_layers, "num_nextn_predict_layers", "num_nextn_predict_layers: 0 is the model without it");
    }
  }
  return modules;
}

Positions read_positions(ConfigFields& fields, const ModelFamily& family) {
  const std::optional<YamlValue> type = fields.find({"position_embedding_type"});
  const bool rotated = family.positions == Positions::none && type && type->text() == "rope";
  return rotated ? Positions::rope : family.positions;
}

// As in transformers the flag beside `text_config` wins.
bool read_tied(ConfigFields& fields, const ModelFamily& family, const YamlValue& file) {
  const bool inner = fields.flag({"tie_word_embeddings"}, family.tied);
  return ConfigFields(file).flag({"tie_word_embeddings"}, inner);
}

Model read_fields_of(ConfigFields& fields, const ModelFamily& family, const YamlValue& file) {
  Model model;
  model.hidden = fields.integer({"hidden_size", "n_embd", "d_model"}, limits::hidden);
  model.layers = read_layers(fields, family, model.hidden);
  model.final_norm = family.norm;
  model.positions = read_positions(fields, family);
  model.arithmetic = read_arithmetic(fields, family);
  const Names position_names = {"n_positions", "max_position_embeddings", "model_max_length"};
  model.max_positions = fields.optional_integer(position_names, 1, limits::positions).value_or(0);
  model.mtp_modules = read_mtp(fields);
  const bool tied = read_tied(fields, family, file);
  if (family.vision) {
    model.vision = read_vision(fields);
    model.max_positions = tokens(*model.vision);
    model.head_bias = true;
  } else {
    model.vocabulary = fields.integer({"vocab_size"}, limits::vocabulary);
    model.tied_embeddings = tied;
    model.head_bias = family.name == "gptj";
    if (family.positions == Positions::learned) model.max_positions = fields.integer(position_names, limits::positions);
  }
  for (const char* name : {"is_encoder_decoder", "add_cross_attention"}) {
    fields.refuse_if_set(name, "an encoder: only decoders are described");
  }
  // Gemma's "vision" is about images alone.
  const std::optional<YamlValue> both_ways = fields.find({"use_bidirectional_attention"});
  if (both_ways && both_ways->text() != "false" && both_ways->text() != "vision") {
    fields.lack("attention that sees both ways", "use_bidirectional_attention");
  }
  return model;
}

std::string text_of(const YamlValue& file, const char* key) {
  const std::optional<YamlValue> value = file.find(key);
  return value && value->is_scalar() && !value->is_null() ? value->text() : "";
}

// Blocks beside the language model's: vision, audio and their projectors.
Names other_parts(const YamlValue& file) {
  Names parts;
  for (const std::string& key : file.keys()) {
    const bool other = key.starts_with("vision") || key.starts_with("audio") || key.starts_with("img_") ||
                       key.starts_with("image_") || key.starts_with("speech");
    if (other && key.ends_with("_config") && file.find(key)->is_map()) parts.push_back(key);
  }
  return parts;
}

struct TextPart {
  ConfigFields fields;
  ModelFamily family;
  bool beside_others = false;  // the file describes more than the language model
};

TextPart text_part(const YamlValue& file) {
  const std::optional<YamlValue> text = file.find("text_config");
  ConfigFields fields(text ? *text : file);
  ModelFamily family = read_family(fields, text ? text_of(file, "model_type") : "");
  const Names parts = other_parts(file);
  if (!text && family.text_beside_vision) (void)fields.find(parts);
  const bool beside = text.has_value() || (family.text_beside_vision && !parts.empty());
  return {.fields = std::move(fields), .family = std::move(family), .beside_others = beside};
}

}  // namespace

Model read_config_json(const YamlValue& file) {
  TextPart part = text_part(file);
  find_lacks(part.fields);
  for (const std::string& feature : part.family.lacks) part.fields.lack(feature);
  Model model;
  try {
    model = read_fields_of(part.fields, part.family, file);
  } catch (const InputError& error) {
    if (!part.fields.has_lacks()) throw;
    // The fields of a refused family need not be those of any other.
    if (part.family.lacks.empty()) part.fields.lack(error.problem());
  }
  if (!part.family.lacks.empty()) part.fields.check_lacks(part.family.name);
  part.fields.check(part.family.name);
  require_possible(model, file.place());
  return model;
}

std::vector<std::string> config_remarks(const YamlValue& file) {
  TextPart part = text_part(file);
  ConfigFields& fields = part.fields;
  std::vector<std::string> remarks;
  if (part.beside_others) {
    const Names parts = other_parts(file);
    std::string names;
    for (const std::string& name : parts) names += (names.empty() ? "" : ", ") + name;
    remarks.push_back("text only: " + (names.empty() ? "the parts beside text_config" : names) +
                      (parts.size() == 1 ? " is" : " are") + " left out, with parameters and time");
  }
  std::string capping;
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.find({name})) capping += (capping.empty() ? "" : ", ") + std::string(name);
  }
  if (!capping.empty()) {
    remarks.push_back(capping + ": left out, since softcapping has no parameters; its time is not counted");
  }
  const auto chunk = part.family.chunked ? fields.find({"attention_chunk_size"}) : std::nullopt;
  if (chunk) {
    remarks.emplace_back("chunks of " + chunk->text() + " tokens count as a sliding window of that size, which costs " +
                         "more in longer sequences");
  }
  if (part.family.released_mtp && !fields.find({"num_nextn_predict_layers"})) {
    remarks.emplace_back(
        "multi-token prediction is left out, since num_nextn_predict_layers is missing; "
        "num_nextn_predict_layers: 1 is the module of the released weights");
  }
  return remarks;
}

bool is_text_part(const Model& model) {
  if (!model.hugging_face) return false;
  return text_part(YamlValue::parse(model.hugging_face->text, "config.json")).beside_others;
}

namespace {

bool is_same_but_name(const FamilyRow& one, const FamilyRow& other) {
  return one.strict == other.strict && one.read_as == other.read_as && one.left_out == other.left_out &&
         one.runs == other.runs && one.lacks == other.lacks;
}

}  // namespace

std::vector<FamilyRow> config_family_rows() {
  std::vector<FamilyRow> rows;
  for (const ModelFamily& family : config_families()) {
    const FamilyRow row{.model_types = {family.name},
                        .strict = family.strict,
                        .read_as = family.words.read_as,
                        .left_out = family.words.left_out,
                        .runs = family.words.runs,
                        .lacks = family.lacks};
    if (!rows.empty() && is_same_but_name(rows.back(), row)) {
      rows.back().model_types.push_back(family.name);
    } else {
      rows.push_back(row);
    }
  }
  return rows;
}

namespace {

// Returns nothing for text that YAML takes and JSON does not. A multimodal file has the outer type, since its tensors
// have other names than those of the language model inside.
std::optional<HuggingFaceConfig> as_handed_on(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const std::string usual = json.contains("text_config") ? "multimodal" : "llama";
  const bool named = json.contains("model_type") && json["model_type"].is_string();
  return HuggingFaceConfig{.model_type = named ? json["model_type"].get<std::string>() : usual, .text = to_line(json)};
}

}  // namespace

void require_computed(const HuggingFaceConfig& config, const std::string& where) {
  TextPart part = text_part(YamlValue::parse(config.text, where));
  require_computed_as_written(part.fields, part.family);
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
